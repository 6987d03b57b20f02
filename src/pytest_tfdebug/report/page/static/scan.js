// Models by tests: a map of states, and the reasons for the chosen cell.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const { make } = tfdebug, data = tfdebug.data(), at = (name) => document.getElementById(name), canvas = at("matrix"), ctx = canvas.getContext("2d");
  const cell = data.models.length * data.tests.length > 40000 ? 5 : 11, states = new Map(data.cells.map(([row, column, state]) => [row * data.tests.length + column, state]));
  let chosen = null, limit = 300, place = [0, 0];
  const colour = (state) => getComputedStyle(document.querySelector(`.swatch.${state.replace(" ", "-")}`)).backgroundColor;
  const words = () => at("search").value.toLowerCase().split(/\s+/).filter(Boolean), fits = (text) => words().every((word) => text.includes(word));
  const reasons = new Map();
  for (const entry of data.entries) { const key = `${entry.row} ${entry.column}`; reasons.set(key, `${reasons.get(key) || ""} ${entry.reason}`); }
  function draw() {
    canvas.width = data.tests.length * cell; canvas.height = data.models.length * cell;
    ctx.clearRect(0, 0, canvas.width, canvas.height);
    const colours = Object.fromEntries(data.states.map((state) => [state, colour(state)])), wanted = at("state").value;
    for (const [row, column, state] of data.cells) {
      const isShown = (!wanted || state === wanted) && fits(`${data.tests[column]} ${data.models[row]} ${reasons.get(`${row} ${column}`) || ""}`.toLowerCase());
      ctx.globalAlpha = isShown ? 1 : 0.12;
      ctx.fillStyle = colours[state];
      ctx.fillRect(column * cell, row * cell, cell - 1, cell - 1);
    }
    ctx.globalAlpha = 1;
    ctx.strokeStyle = tfdebug.colour("accent"); ctx.lineWidth = 2;
    if (chosen) ctx.strokeRect(chosen[1] * cell, chosen[0] * cell, cell - 1, cell - 1);
  }
  function list() {
    const wanted = at("state").value;
    const found = data.entries.filter((entry) => (chosen ? entry.row === chosen[0] && entry.column === chosen[1] : (!wanted || entry.state === wanted) && fits(`${entry.test} ${entry.model} ${entry.class} ${entry.reason}`.toLowerCase())));
    at("count").textContent = `${found.length} of ${data.entries.length} entries${chosen ? `: ${data.tests[chosen[1]]} of ${data.models[chosen[0]]}. Escape shows all.` : ""}`;
    at("entries").replaceChildren(...found.slice(0, limit).map((entry) => make("tr", {}, make("th", { scope: "row" }, entry.test), make("td", {}, `${entry.model} `, make("span", { class: "muted small" }, entry.class)),
      make("td", {}, make("span", { class: `swatch ${entry.state}` }), ` ${entry.state}`), make("td", {}, entry.reason || "no reason", entry.condition ? make("span", { class: "muted" }, ` if ${entry.condition}`) : ""), make("td", {}, make("a", { class: "place", href: "#", "data-file": entry.file, "data-line": entry.line }, `${entry.file}:${entry.line}`)))));
    at("more").hidden = found.length <= limit;
    tfdebug.linkPlaces(at("entries"));
  }
  const show = () => { draw(); list(); };
  function read(row, column) {
    place = [Math.min(data.models.length - 1, Math.max(0, row)), Math.min(data.tests.length - 1, Math.max(0, column))];
    const state = states.get(place[0] * data.tests.length + place[1]) || "absent";
    at("readout").textContent = `${data.models[place[0]]} · ${data.tests[place[1]]}: ${state}${reasons.get(place.join(" ")) || ""}`;
  }
  const cellOf = (event) => [Math.floor(event.offsetY / cell), Math.floor(event.offsetX / cell)];
  const choose = (row, column) => { chosen = [row, column]; show(); };
  canvas.addEventListener("pointermove", (event) => read(...cellOf(event)));
  canvas.addEventListener("click", (event) => { read(...cellOf(event)); choose(...place); });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    if (step) { event.preventDefault(); read(place[0] + step[0], place[1] + step[1]); }
    if (event.key === "Enter") choose(...place);
  });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape" && chosen) { chosen = null; show(); } });
  at("controls").addEventListener("input", () => { chosen = null; limit = 300; show(); });
  at("controls").addEventListener("submit", (event) => event.preventDefault());
  at("more").addEventListener("click", () => { limit += 1000; list(); });
  tfdebug.onTheme.push(draw);
  show();
});
