// The page of one check: puts its data into curve, trees, maps and tables.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const { make, number, shown } = tfdebug, data = tfdebug.data(), at = (name) => document.getElementById(name);
  const sections = [...document.querySelectorAll("main section[id]")], toc = document.querySelector(".toc");
  for (const section of sections.slice(1)) toc.append(make("a", { href: `#${section.id}` }, section.querySelector("h2").firstChild.textContent.trim()));
  if (toc.children.length < 2) toc.hidden = true;
  if (data.own) modules();
  if (data.elements) elements(data.elements);
  if (at("headroom-rows")) headroom();
  for (const table of document.querySelectorAll(".values, .headroom")) {
    const culprit = table.querySelector(".is-culprit"), scroll = table.closest(".scroll");
    if (culprit) scroll.scrollTop = culprit.offsetTop - scroll.clientHeight / 3;
  }

  function modules() {
    const own = tfdebug.calls(data.own), reference = tfdebug.calls(data.reference);
    const beside = new Map(data.pairs.map(([mine, theirs, by]) => [mine, [theirs, by]])), back = new Map(data.pairs.map(([mine, theirs, by]) => [theirs, [mine, by]]));
    const tag = (pairs) => (call) => ({ values: "≈", suggested: "→" })[pairs.get(call.index)?.[1]];
    const left = new tfdebug.Tree(at("own"), own, tag(beside), data.culprit, (call) => { left.show(call.index); right.show(beside.get(call.index)?.[0] ?? null); });
    const theirs = data.culprit === null ? null : beside.get(data.culprit)?.[0] ?? null;
    const right = new tfdebug.Tree(at("reference"), reference, tag(back), theirs, (call) => { right.show(call.index); left.show(back.get(call.index)?.[0] ?? null); });
    const choose = (call, takesFocus) => { left.show(call.index, takesFocus); right.show(beside.get(call.index)?.[0] ?? null); };
    const byName = new Map(reference.map((call) => [call.index, call.name]));
    const told = (call) => [`${call.name} (${call.class})`, call.state + (beside.has(call.index) ? ` as ${byName.get(beside.get(call.index)[0])}` : ""),
      call.share === null ? "" : call.share === 0 ? "equal" : `${shown(call.share)} of tolerance`, call.maxAbs ? `max abs ${shown(call.maxAbs)}` : "", call.l2 ? `relative L2 ${shown(call.l2)}` : "", call.shape].filter(Boolean).join(" · ");
    const drawn = own.filter((call) => call.state !== "not compared" && (call.state !== "agrees" || call.share !== null)).sort((a, b) => a.ended - b.ended);
    const curve = tfdebug.curve(at("curve"), drawn, data.culprit, (call) => { choose(call, false); at("modules").scrollIntoView(); }, (call) => { at("curve-readout").textContent = told(call); });
    at("curve-of").addEventListener("change", (event) => curve.filter((call) => event.target.value === "all" || call.parent === null || call.index === data.culprit || /\.\d+$/.test(call.path)));
    at("curve-table").closest("details").addEventListener("toggle", () => table(drawn), { once: true });
    function table(calls) {
      const rows = calls.map((call) => make("tr", { class: call.index === data.culprit ? "is-culprit" : null }, make("th", { scope: "row" }, call.name), ...[call.class, call.state, call.share === null ? "" : shown(call.share), call.maxAbs === null ? "" : shown(call.maxAbs), call.l2 === null ? "" : shown(call.l2), call.shape].map((text) => make("td", {}, text))));
      const head = ["module", "class", "state", "share of tolerance", "max abs", "relative L2", "shape"].map((text) => make("th", { scope: "col" }, text));
      at("curve-table").append(make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows)));
    }
    at("only").addEventListener("change", (event) => { for (const tree of [left, right]) { tree.onlyTelling = event.target.checked; tree.draw(); } });
    at("unfold").addEventListener("click", () => { left.unfoldAll(); right.unfoldAll(); });
    at("fold").addEventListener("click", () => { left.foldAll(); right.foldAll(); });
    const culprit = own.find((call) => call.index === data.culprit);
    at("to-culprit")?.addEventListener("click", () => choose(culprit, true));
    if (culprit) choose(culprit, false);
  }

  function elements(grid) {
    const [expected, actual, allowed] = [grid.expected, grid.actual, grid.allowed].map((values) => values.map(number));
    const difference = actual.map((value, place) => (value === expected[place] || (Number.isNaN(value) && Number.isNaN(expected[place])) ? 0 : Math.abs(value - expected[place])));
    const share = difference.map((value, place) => (value === 0 ? 0 : value / allowed[place])), most = Math.max(...[...expected, ...actual].filter(Number.isFinite).map(Math.abs), 0);
    const where = (row, column) => {
      const lengths = grid.shape.slice(0, -1), places = [];
      let rest = row * grid.block[0];
      for (const length of lengths.slice().reverse()) { places.unshift(rest % length); rest = Math.floor(rest / length); }
      return [...places, column * grid.block[1]].map((place, axis) => `${grid.axes[axis]} ${place}`).join(", ");
    };
    const maps = [];
    const read = (row, column) => {
      const place = row * grid.columns + column;
      maps.forEach((draw) => draw(row, column));
      at("heat-readout").textContent = `${where(row, column)}: expected ${shown(expected[place])}, actual ${shown(actual[place])}, difference ${shown(difference[place])} (${shown(share[place])} of tolerance)`;
    };
    const cell = Math.max(3, Math.min(18, 300 / grid.rows)), signed = tfdebug.signed(most);
    for (const [title, values, paint, scale] of [
      ["Expected", expected, signed, tfdebug.scale(signed, -most, most, shown(-most), shown(most))],
      ["Actual", actual, signed, tfdebug.scale(signed, -most, most, shown(-most), shown(most))],
      ["Difference, as a share of tolerance", share, tfdebug.shares, tfdebug.scale((power) => tfdebug.shares(10 ** power), -4, 5, "≤ 0.0001×", "100000×")],
    ]) {
      const canvas = make("canvas", { tabindex: "0", role: "img", "aria-label": `${title}: ${grid.rows} rows, ${grid.columns} columns. Arrow keys read the elements.` });
      at("heats").append(make("figure", {}, make("figcaption", {}, title), canvas, make("div", { class: "axis" }, `${grid.axes.slice(0, -1).join(" × ") || "one row"} ↓  ${grid.axes.at(-1)} →`), scale));
      maps.push(tfdebug.heat(canvas, grid.rows, grid.columns, (place) => values[place], paint, read, cell));
    }
    const made = new Set();
    const draw = { scatter: () => tfdebug.scatter(at("scatter"), grid), histogram: () => { tfdebug.histogram(at("histogram"), grid.histogram, "value", ["expected", "actual"]); tfdebug.histogram(at("differences"), grid.differences, "absolute difference, power of 10", ["elements that differ"]); } };
    for (const option of document.querySelectorAll("input[name=elements]")) option.addEventListener("change", () => {
      for (const view of document.querySelectorAll("#elements [data-view]")) view.hidden = view.dataset.view !== option.value;
      if (draw[option.value] && !made.has(option.value)) { made.add(option.value); draw[option.value](); }
    });
  }

  function headroom() {
    const body = at("headroom-rows").tBodies[0], rows = [...body.rows];
    at("headroom-sort").addEventListener("change", (event) => body.append(...rows.sort((a, b) => a.dataset[event.target.value] - b.dataset[event.target.value])));
    at("headroom-search").addEventListener("input", (event) => { for (const row of rows) row.hidden = !row.dataset.path.includes(event.target.value.trim()); });
  }
});
