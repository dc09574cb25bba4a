"use strict";
// Tables: a click on a heading sorts, the field above filters. Rows keep their place where they are equal.
const compare = new Intl.Collator("en", { numeric: true }).compare;
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const head = button.parentElement;
    const table = head.closest("table");
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const place = head.cellIndex;
    const rows = [...table.tBodies[0].rows].map((row) => {
      const cell = row.cells[place];
      return { row, number: cell.dataset.v === undefined ? NaN : Number(cell.dataset.v), text: cell.textContent.trim() };
    });
    rows.sort((a, b) => {
      if (!a.text || !b.text) return Boolean(b.text) - Boolean(a.text); // what was not measured comes last
      const order = isNaN(a.number) || isNaN(b.number) ? compare(a.text, b.text) : a.number - b.number;
      return down ? -order : order;
    });
    table.tBodies[0].append(...rows.map((one) => one.row));
  });
}
for (const field of document.querySelectorAll("input[data-table]")) {
  const rows = [...document.getElementById(field.dataset.table).tBodies[0].rows];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const count = document.querySelector(`output[data-of="${CSS.escape(field.dataset.table)}"]`);
  const whole = count.textContent;
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/);
    let shown = 0;
    rows.forEach((row, place) => {
      row.hidden = !words.every((word) => texts[place].includes(word));
      shown += !row.hidden;
    });
    count.textContent = shown === rows.length ? whole : `${shown} of ${whole}`;
  });
}
// A link must lead to its place, also in a part that is folded, or to a row that a filter hides.
const reveal = () => {
  const at = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!at) return;
  for (let part = at.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
  if (at.hidden) {
    const field = document.querySelector(`input[data-table="${CSS.escape(at.closest("table").id)}"]`);
    field.value = "";
    field.dispatchEvent(new Event("input"));
  }
  at.scrollIntoView();
};
addEventListener("hashchange", reveal);
reveal();
// The same link once more changes no address.
addEventListener("click", (event) => event.target.closest('a[href^="#"]') && setTimeout(reveal));
// A figure's SVG is in the page once: the link that saves it has the address of the picture.
for (const link of document.querySelectorAll("a.same")) link.href = link.closest("figure").querySelector("img").src;
// Figures: enlarged in a window of their own, and put back.
const dialog = document.querySelector("dialog");
const place = dialog.querySelector(".scroll");
let home = null;
let wide = 0;
for (const button of document.querySelectorAll("button.zoom")) {
  button.addEventListener("click", () => {
    home = button.closest("figure");
    const picture = home.querySelector(".picture");
    place.append(picture);
    dialog.showModal();
    wide = place.clientWidth;
    picture.querySelector("img").style.width = `${wide}px`;
  });
}
dialog.addEventListener("close", () => {
  const picture = place.querySelector(".picture");
  picture.querySelector("img").style.width = "";
  home.prepend(picture);
});
for (const button of dialog.querySelectorAll("button")) {
  button.addEventListener("click", () => {
    const factor = Number(button.dataset.zoom);
    if (!factor) return dialog.close();
    wide *= factor;
    place.querySelector("img").style.width = `${wide}px`;
  });
}
// Explore: series over workers, drawn from what the page carries. Hide a series, ratios or values, log or linear.
const box = document.getElementById("explore");
if (box) {
  const series = JSON.parse(box.dataset.series);
  const tell = box.querySelector("output");
  const plot = box.querySelector("svg");
  const field = (name) => box.querySelector(`[name="${name}"]`);
  const make = (name, attributes, parent, text) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    return parent.appendChild(node);
  };
  const short = (value) => Number(value.toPrecision(3)).toLocaleString("en");
  // Round numbers from 0 to the first that is not below the highest value: three to six of them.
  const evenly = (highest) => {
    const power = 10 ** Math.floor(Math.log10(highest));
    const step = [0.2, 0.25, 0.5, 1, 2].map((part) => part * power).find((part) => highest / part <= 5);
    return [...Array(Math.ceil(highest / step - 1e-9) + 1).keys()].map((k) => k * step);
  };
  // 1, 2 and 5 of each decade between two values; both values where fewer than two of these lie between them.
  const doublings = (lowest, highest) => {
    const found = [];
    for (let power = 10 ** Math.floor(Math.log10(lowest)); power <= highest; power *= 10) {
      for (const part of [1, 2, 5]) if (part * power >= lowest && part * power <= highest) found.push(part * power);
    }
    return found.length < 2 ? [lowest, highest] : found;
  };
  const draw = () => {
    plot.replaceChildren();
    const measure = field("measure").value;
    const log = field("log").checked;
    const relative = field("relative").checked;
    const shown = series.filter((one, place) => box.querySelector(`[data-series="${place}"]`).checked);
    const points = shown.map((one) => one.points.filter((p) => p[measure]).map((p) => {
      const [middle, low, high] = p[measure];
      const noisy = low === null || high > 10 * low; // as in the answer: such an interval stretches no axis
      const base = relative ? one.points.find((q) => q[measure])[measure][0] : 1;
      return { n: p.workers, y: middle / base, low: noisy ? null : low / base, high: noisy ? null : high / base };
    }));
    const all = points.flat();
    if (!all.length) return void make("text", { x: 20, y: 30 }, plot, "no series is shown");
    const ys = all.flatMap((p) => [p.y, p.low ?? p.y, p.high ?? p.y]);
    const ns = [...new Set(all.map((p) => p.n))].sort((a, b) => a - b);
    const ticks = log ? doublings(Math.min(...ys), Math.max(...ys)) : evenly(Math.max(...ys));
    const [bottom, top] = log ? [Math.min(...ys, ticks[0]), Math.max(...ys, ticks.at(-1))] : [0, ticks.at(-1)];
    const f = log ? Math.log : (v) => v;
    const [x0, x1, y0, y1] = [64, 700, 300, 14];
    const span = f(top) - f(bottom) || 1;
    const y = (v) => y0 - ((f(v) - f(bottom)) / span) * (y0 - y1);
    const x = (n) => (ns.length < 2 ? (x0 + x1) / 2 : x0 + 20 + (ns.indexOf(n) / (ns.length - 1)) * (x1 - x0 - 40));
    for (const v of ticks) {
      make("line", { x1: x0, x2: x1, y1: y(v), y2: y(v), class: "grid" }, plot);
      make("text", { x: x0 - 6, y: y(v) + 4, "text-anchor": "end" }, plot, short(v));
    }
    for (const n of ns) make("text", { x: x(n), y: y0 + 18, "text-anchor": "middle" }, plot, n);
    make("text", { x: (x0 + x1) / 2, y: y0 + 36, "text-anchor": "middle" }, plot, box.dataset.unit);
    shown.forEach((one, place) => {
      const g = make("g", { class: `s${series.indexOf(one) % 6}` }, plot);
      const line = points[place];
      make("polyline", { points: line.map((p) => `${x(p.n)},${y(p.y)}`).join(" ") }, g);
      for (const p of line) {
        if (p.low !== null) make("line", { x1: x(p.n), x2: x(p.n), y1: y(Math.max(p.low, bottom)), y2: y(p.high) }, g);
        const ends = p.low === null ? "" : ` (${short(p.low)} to ${short(p.high)})`;
        const words = `${one.name}, ${p.n} ${box.dataset.unit}: ${short(p.y)}${ends}`;
        const dot = make("circle", { cx: x(p.n), cy: y(p.y), r: 5, tabindex: 0, role: "img", "aria-label": words }, g);
        make("title", {}, dot, words);
        for (const event of ["mouseenter", "focus"]) dot.addEventListener(event, () => { tell.textContent = words; });
      }
    });
  };
  box.addEventListener("input", draw);
  draw();
}
