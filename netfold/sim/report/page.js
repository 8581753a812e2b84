"use strict";
// A page is complete without this: it adds sorting and filters to tables, numbers under the pointer and
// downloads to figures, and opens what an anchor points to.
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  const make = (name, attributes, text = "") => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.textContent = text;
    return element;
  };

  // Tables. A cell is sorted by its `data-value` if it has one, else by its text; numbers before texts.
  const FILTERED_FROM = 13; // rows

  const sortKey = (cell) => {
    const text = cell ? (cell.dataset.value ?? cell.textContent.trim()) : "";
    return text !== "" && isFinite(text) ? [0, Number(text)] : [text === "" || text === "–" ? 2 : 1, text];
  };

  const compare = ([kind, value], [otherKind, other], sign) =>
    kind - otherKind || sign * (kind === 0 ? value - other : value.localeCompare(other, "en", {numeric: true}));

  const sortBy = (table, heading) => {
    const sign = heading.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    const column = heading.cellIndex;
    const keyed = bodyRows(table).map((row) => [sortKey(row.cells[column]), row]);
    keyed.sort((one, other) => compare(one[0], other[0], sign)); // stable: ties keep their order
    for (const [, row] of keyed) {
      const [first] = row.cells; // a name that stands once above several rows
      if (first && first.textContent === "") first.textContent = first.dataset.value ?? "";
      row.parentNode.append(row);
    }
    for (const other of all("th", table)) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
  };

  const bodyRows = (table) => all("tr", table).filter((row) => row.querySelector("td"));

  const addFilter = (table) => {
    const rows = bodyRows(table);
    const box = make("input", {type: "search", placeholder: "filter rows", "aria-label": "filter rows"});
    const count = make("output", {class: "soft"});
    box.addEventListener("input", () => {
      const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
      const text = (row) => (row.cells[0].dataset.value ?? "") + " " + row.textContent;
      for (const row of rows) row.hidden = !words.every((word) => text(row).toLowerCase().includes(word));
      count.textContent = words.length ? ` ${rows.filter((row) => !row.hidden).length} of ${rows.length} rows` : "";
    });
    const line = make("p", {class: "filter"});
    line.append(box, count);
    (table.closest(".wide") ?? table).before(line);
  };

  for (const table of all("table")) {
    const headings = all("th", table);
    if (headings.length === 0) continue;
    for (const heading of headings) {
      const button = make("button", {type: "button", title: "sort"}, heading.textContent);
      button.addEventListener("click", () => sortBy(table, heading));
      heading.replaceChildren(button);
    }
    if (bodyRows(table).length >= FILTERED_FROM) addFilter(table);
  }

  // Figures. The titles of marks are shown at once, and with the arrow keys; browsers alone show them late.
  const tip = make("div", {id: "tip", role: "status", hidden: ""});
  document.body.append(tip);

  const show = (mark, x, y) => {
    tip.textContent = mark.dataset.tip;
    tip.hidden = false;
    const width = document.documentElement.clientWidth;
    tip.style.left = `${Math.max(4, Math.min(x + 12, width - tip.offsetWidth - 4))}px`;
    tip.style.top = `${y + 14 + tip.offsetHeight > innerHeight ? y - tip.offsetHeight - 8 : y + 14}px`;
  };

  const hide = () => { tip.hidden = true; };

  const fileOf = (name, type, text) => {
    const link = make("a", {href: URL.createObjectURL(new Blob([text], {type})), download: name});
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };

  // The figure with its colours on white paper, whatever the page has.
  const svgText = (svg) => {
    const copy = svg.cloneNode(true);
    for (const mark of all("[data-tip]", copy)) {
      const title = document.createElementNS(svg.namespaceURI, "title");
      title.textContent = mark.dataset.tip;
      mark.append(title);
      mark.removeAttribute("data-tip");
    }
    const text = new XMLSerializer().serializeToString(copy);
    return `<?xml version="1.0" encoding="utf-8"?>\n${text.replace(/var\(--[\w-]+,\s*(#[0-9a-f]{6})\)/g, "$1")}\n`;
  };

  for (const figure of all("figure")) {
    const svg = figure.querySelector("svg");
    if (!svg) continue;
    const marks = all("title", svg).map((title) => {
      const mark = title.parentNode;
      mark.dataset.tip = title.textContent;
      title.remove();
      return mark;
    });
    svg.addEventListener("pointermove", (event) => {
      const mark = event.target.closest("[data-tip]");
      if (mark) show(mark, event.clientX, event.clientY);
      else hide();
    });
    svg.addEventListener("pointerleave", hide);
    let at = -1;
    if (marks.length) svg.setAttribute("tabindex", "0");
    svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", (event) => {
      const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
      if (event.key === "Escape") hide();
      if (!step || !marks.length) return;
      event.preventDefault();
      at = (at + step + marks.length + (at < 0 && step < 0 ? 1 : 0)) % marks.length;
      const box = marks[at].getBoundingClientRect();
      show(marks[at], box.x + box.width / 2, box.y + box.height / 2);
    });
    const table = svg.querySelector("metadata")?.textContent;
    const line = make("p", {class: "files"});
    const offer = (kind, type, text) => {
      const button = make("button", {type: "button", "aria-label": `${figure.id} as ${kind}`}, kind);
      button.addEventListener("click", () => fileOf(`${figure.id}.${kind.toLowerCase()}`, type, text()));
      line.append(button);
    };
    offer("SVG", "image/svg+xml", () => svgText(svg));
    if (table) offer("CSV", "text/csv", () => table);
    figure.append(line);
  }

  // What an anchor points to is opened.
  const openTarget = () => {
    let element = location.hash.length > 1 ? document.getElementById(location.hash.slice(1)) : null;
    const target = element;
    for (; element; element = element.parentElement) if (element.localName === "details") element.open = true;
    if (target) target.scrollIntoView();
  };
  addEventListener("hashchange", openTarget);
  openTarget();
})();
