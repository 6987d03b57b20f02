// Curves and bars by uPlot, and heat maps on a canvas; each can be read with the keyboard.
"use strict";
{
  const { colour, make, number } = tfdebug;
  const short = (value) => (!Number.isFinite(value) ? String(value) : value === 0 ? "0" : Math.abs(value) >= 1e4 || Math.abs(value) < 1e-3 ? value.toExponential(1).replace(".0e", "e") : String(+value.toPrecision(3)));
  tfdebug.shown = short;

  function axis(label, more = {}) {
    const font = "12px system-ui, sans-serif";
    return { label, labelSize: 22, labelFont: font, font, labelGap: 2, stroke: colour("soft"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), width: 1 }, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : short(tick))), ...more };
  }

  // Draws again when the window or the theme changes; options() is asked anew for its colours.
  tfdebug.plot = function plot(place, options, data) {
    let chart = null;
    const size = () => ({ width: Math.max(240, place.clientWidth), height: place.clientWidth < 480 ? 250 : 320 });
    const draw = () => { chart?.destroy(); chart = new uPlot({ ...size(), legend: { show: false }, ...options() }, data(), place); };
    draw();
    new ResizeObserver(() => place.clientWidth && chart.width !== size().width && chart.setSize(size())).observe(place);
    tfdebug.onTheme.push(draw);
    return { get chart() { return chart; }, draw };
  };

  const dots = (name, size) => ({ stroke: colour(name), paths: () => null, points: { show: true, size, fill: colour(name), stroke: colour(name), width: 0 } });

  // The difference along depth: a point for each call, in the order in which the calls ended.
  tfdebug.curve = function curve(place, calls, culprit, choose, read) {
    const floor = Math.min(1e-4, ...calls.map((call) => call.share).filter((share) => share > 0 && share < Infinity)) / 3;
    const top = Math.max(10, ...calls.map((call) => call.share).filter((share) => Number.isFinite(share))) * 6;
    const height = (call) => (call.share === null ? (call.state === "agrees" ? floor : top) : call.share === Infinity ? top : Math.max(call.share, floor));
    const powers = [...Array(60).keys()].map((at) => 10 ** (at - 30)).filter((power) => power > floor * 1.5 && power < top / 1.5), step = Math.ceil(powers.length / 7);
    const splits = [floor, ...powers.filter((power) => Math.round(Math.log10(power)) % step === 0), top];
    let shown = calls;
    const data = () => [shown.map((_, at) => at), shown.map((call) => (call.state === "unpaired" ? null : height(call))), shown.map((call) => (call.state === "agrees" ? height(call) : null))];
    function mark(u) {
      const at = shown.findIndex((call) => call.index === culprit), { ctx } = u, ratio = devicePixelRatio;
      ctx.save();
      ctx.beginPath();
      ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
      ctx.clip();
      const [bad, warn] = [colour("bad"), colour("warn")];
      shown.forEach((call, at) => {
        if (call.state === "agrees") return;
        const [x, y, r] = [u.valToPos(at, "x", true), u.valToPos(height(call), "y", true), 4.5 * ratio];
        ctx.beginPath();
        if (call.state === "differs") { ctx.moveTo(x, y - r); ctx.lineTo(x + r, y + r * 0.8); ctx.lineTo(x - r, y + r * 0.8); ctx.fillStyle = bad; ctx.fill(); }
        else { ctx.arc(x, y, 0.7 * r, 0, 7); ctx.strokeStyle = warn; ctx.lineWidth = 1.5 * ratio; ctx.stroke(); }
      });
      ctx.setLineDash([6 * ratio, 4 * ratio]);
      ctx.lineWidth = 1.5 * ratio;
      ctx.strokeStyle = colour("ink");
      const y = u.valToPos(1, "y", true);
      ctx.beginPath(); ctx.moveTo(u.bbox.left, y); ctx.lineTo(u.bbox.left + u.bbox.width, y); ctx.stroke();
      ctx.font = `${12 * ratio}px system-ui, sans-serif`;
      ctx.fillStyle = colour("soft");
      ctx.textAlign = "left";
      ctx.fillText("tolerance", u.bbox.left + 6 * ratio, y - 5 * ratio);
      if (at >= 0) {
        const x = u.valToPos(at, "x", true), text = shown[at].name, left = x + ctx.measureText(text).width + 12 * ratio > u.bbox.left + u.bbox.width;
        ctx.strokeStyle = ctx.fillStyle = colour("bad");
        ctx.beginPath(); ctx.moveTo(x, u.bbox.top); ctx.lineTo(x, u.bbox.top + u.bbox.height); ctx.stroke();
        ctx.textAlign = left ? "right" : "left";
        ctx.font = `600 ${12 * ratio}px system-ui, sans-serif`;
        ctx.fillText(text, x + (left ? -7 : 7) * ratio, u.bbox.top + 16 * ratio);
      }
      ctx.restore();
    }
    const options = () => ({
      scales: { x: { time: false }, y: { distr: 3, range: () => [floor / 2, top * 2] } },
      axes: [
        axis("modules, in the order in which they ended", { values: (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) && shown[tick] ? tick : "")) }),
        axis("share of tolerance", { size: 78, splits: () => splits, filter: (_, ticks) => ticks, values: (_, ticks) => ticks.map((tick) => (tick === floor ? "equal" : tick === top ? "no partner" : short(tick))) }),
      ],
      series: [{}, { stroke: colour("line"), width: 1.5, spanGaps: true, points: { show: false } }, dots("good", 6)],
      cursor: { drag: { x: true, y: false }, points: { size: 10 }, y: false },
      hooks: { draw: [mark], setCursor: [(u) => u.cursor.idx !== null && read(shown[u.cursor.idx])] },
    });
    const drawn = tfdebug.plot(place, options, data);
    let at = -1;
    place.addEventListener("click", () => { const found = shown[drawn.chart.cursor.idx]; if (found) choose(found); });
    place.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, PageDown: 25, PageUp: -25, Home: -1e9, End: 1e9 }[event.key];
      if (event.key === "Enter" && shown[at]) choose(shown[at]);
      if (step === undefined) return;
      event.preventDefault();
      at = Math.min(shown.length - 1, Math.max(0, at + step));
      drawn.chart.setCursor({ left: drawn.chart.valToPos(at, "x"), top: drawn.chart.valToPos(height(shown[at]), "y") });
      read(shown[at]);
    });
    return { filter(keep) { shown = calls.filter(keep); at = -1; drawn.draw(); } };
  };

  tfdebug.histogram = function histogram(place, found, label, names) {
    if (!found) { place.replaceWith(make("p", { class: "muted" }, "No element differs.")); return; }
    const edges = found.edges.map(number), width = edges[1] - edges[0];
    const bars = (name, align, side) => ({ label: name, stroke: colour(align), fill: `${colour(align)}88`, width: 0, points: { show: false }, paths: uPlot.paths.bars({ size: [names.length > 1 ? 0.45 : 0.9, 60], align: side }) });
    tfdebug.plot(place, () => ({
      scales: { x: { time: false, range: () => [edges[0], edges.at(-1)] } },
      axes: [axis(label), axis("elements", { size: 60 })],
      series: [{ label: "" }, bars(names[0], "accent", names.length > 1 ? -1 : 0), ...(names.length > 1 ? [bars(names[1], "bad", 1)] : [])],
    }), () => [edges.slice(0, -1).map((edge) => edge + width / 2), found.expected, ...(names.length > 1 ? [found.actual] : [])]);
  };

  tfdebug.scatter = function scatter(place, grid) {
    const pairs = grid.expected.map((expected, at) => [number(expected), number(grid.actual[at])]).filter(([e, a]) => Number.isFinite(e) && Number.isFinite(a)).sort((a, b) => a[0] - b[0]);
    tfdebug.plot(place, () => ({
      scales: { x: { time: false } },
      axes: [axis("expected"), axis("actual", { size: 64 })],
      series: [{}, { stroke: colour("soft"), width: 1, dash: [5, 4], points: { show: false } }, dots("accent", 4)],
    }), () => [pairs.map(([e]) => e), pairs.map(([e]) => e), pairs.map(([, a]) => a)]);
  };

  const between = (low, high, at) => low.map((from, part) => Math.round(from + (high[part] - from) * at));
  const [cold, pale, hot, dark, gone] = [[40, 92, 170], [244, 244, 242], [190, 60, 35], [90, 12, 20], [150, 150, 150]];
  // Blue, white, red around 0; and from white to red at the tolerance, darker beyond.
  tfdebug.signed = (most) => (value) => (!Number.isFinite(value) ? gone : between(pale, value < 0 ? cold : hot, Math.min(1, Math.abs(value) / (most || 1))));
  tfdebug.shares = (value) => {
    if (Number.isNaN(value)) return gone;
    if (value <= 1) return between(pale, [245, 205, 150], Math.max(0, 1 + Math.log10(Math.max(value, 1e-9)) / 4));
    return between([226, 120, 60], dark, Math.min(1, Math.log10(value) / 5));
  };

  // A map of rows by columns; read(row, column) says what is there. Several maps can share one cursor.
  tfdebug.heat = function heat(canvas, rows, columns, value, paint, read, cell) {
    canvas.width = columns; canvas.height = rows;
    const ctx = canvas.getContext("2d"), image = ctx.createImageData(columns, rows);
    for (let at = 0; at < rows * columns; at++) image.data.set([...paint(value(at)), 255], 4 * at);
    const draw = (row, column) => {
      ctx.putImageData(image, 0, 0);
      if (row === undefined) return;
      ctx.fillStyle = "#00c2ff";
      ctx.fillRect(column, row, 1, 1);
    };
    draw();
    canvas.style.height = `${Math.round(rows * cell)}px`;
    let place = [0, -1];
    const go = (row, column) => { place = [Math.min(rows - 1, Math.max(0, row)), Math.min(columns - 1, Math.max(0, column))]; read(...place); };
    canvas.addEventListener("pointermove", (event) => {
      const box = canvas.getBoundingClientRect();
      go(Math.floor(((event.clientY - box.top) / box.height) * rows), Math.floor(((event.clientX - box.left) / box.width) * columns));
    });
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
      if (!step) return;
      event.preventDefault();
      go(place[0] + step[0], place[1] + step[1]);
    });
    return draw;
  };

  tfdebug.scale = (paint, from, to, ...labels) => {
    const stops = [...Array(24).keys()].map((at) => `rgb(${paint(from + ((to - from) * at) / 23)})`);
    const bar = make("i");
    bar.style.background = `linear-gradient(to right, ${stops})`;
    return make("div", { class: "scale" }, labels[0], bar, labels[1]);
  };
}
