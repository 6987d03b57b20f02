// The index: filter, search and sort the cards; the address keeps the choice, so that a view can be shared.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const list = document.getElementById("cards");
  if (!list) return;
  const form = document.getElementById("controls"), field = (name) => document.getElementById(name);
  const cards = [...list.children].map((card) => ({ card, text: card.textContent.toLowerCase(), ...card.dataset }));
  const status = () => form.querySelector("input[name=status]:checked").value;
  const orders = {
    failed: (a, b) => (a.status > b.status) - (a.status < b.status) || a.order - b.order,
    worst: (a, b) => b.worst - a.worst || a.order - b.order,
    covered: (a, b) => a.covered - b.covered || a.order - b.order,
    test: (a, b) => a.test.localeCompare(b.test),
  };
  function show() {
    const words = field("search").value.toLowerCase().split(/\s+/).filter(Boolean), wanted = status(), kind = field("kind").value;
    let shown = 0;
    for (const each of cards) {
      const fits = (!wanted || each.status === wanted) && (!kind || each.kind === kind) && words.every((word) => each.text.includes(word));
      each.card.hidden = !fits;
      shown += fits;
    }
    list.append(...cards.sort(orders[field("sort").value]).map((each) => each.card));
    field("count").textContent = shown === cards.length ? `${shown} checks` : `${shown} of ${cards.length} checks`;
    field("none").hidden = shown > 0;
    const chosen = new URLSearchParams({ q: field("search").value, status: wanted, kind, sort: field("sort").value });
    try { history.replaceState(null, "", `#${chosen}`); } catch { /* a page in a frame may not */ }
  }
  const kept = new URLSearchParams(location.hash.slice(1));
  field("search").value = kept.get("q") || "";
  for (const name of ["kind", "sort"]) if ([...field(name).options].some((option) => option.value === kept.get(name))) field(name).value = kept.get(name);
  for (const option of form.querySelectorAll("input[name=status]")) option.checked = option.value === (kept.get("status") || "");
  form.addEventListener("input", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  field("clear").addEventListener("click", () => { form.reset(); show(); field("search").focus(); });
  show();
});
