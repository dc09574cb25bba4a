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
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/);
    let shown = 0;
    rows.forEach((row, place) => {
      row.hidden = !words.every((word) => texts[place].includes(word));
      shown += !row.hidden;
    });
    count.textContent = shown === rows.length ? `${rows.length} rows` : `${shown} of ${rows.length} rows`;
  });
}
// A link to a run must lead to its row, also if a filter hides it.
const reveal = () => {
  const row = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (row && row.hidden) {
    const field = document.querySelector(`input[data-table="${CSS.escape(row.closest("table").id)}"]`);
    field.value = "";
    field.dispatchEvent(new Event("input"));
    row.scrollIntoView();
  }
};
addEventListener("hashchange", reveal);
// The same link once more changes no address.
addEventListener("click", (event) => event.target.closest('a[href^="#"]') && setTimeout(reveal));
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
    picture.querySelector("svg").style.width = `${wide}px`;
  });
}
dialog.addEventListener("close", () => {
  const picture = place.querySelector(".picture");
  picture.querySelector("svg").style.width = "";
  home.prepend(picture);
});
for (const button of dialog.querySelectorAll("button")) {
  button.addEventListener("click", () => {
    const factor = Number(button.dataset.zoom);
    if (!factor) return dialog.close();
    wide *= factor;
    place.querySelector("svg").style.width = `${wide}px`;
  });
}
