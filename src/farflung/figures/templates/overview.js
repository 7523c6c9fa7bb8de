"use strict";
// A sortable table of runs. All text from a run is set as text, never as HTML.
(() => {
  const rows = JSON.parse(document.getElementById("runs").textContent);
  const columns = [["title", "run"], ["state", "state"], ["updates", "updates"], ["entropy", "entropy (nats)"], ["normalized", "entropy / log(states)"], ["support", "states visited"]];
  const body = document.querySelector("#runs-table tbody"), compare = document.getElementById("compare"), chosen = new Set();
  // The order is kept in the address, since the page is loaded again while a training goes on.
  const [kept, direction] = location.hash.slice(1).split("-");
  let sorted = columns.some(([name]) => name === kept) ? kept : "title", isUp = direction !== "down";
  const add = (parent, tag, ...rest) => addTo(parent, document.createElement(tag), ...rest);
  for (const row of rows) if (row.problem) row.state = "cannot be read";
  const before = (a, b) => {
    const [x, y] = [a[sorted] ?? null, b[sorted] ?? null];
    if (x === null || y === null) return (x === null) - (y === null);
    return (isUp ? 1 : -1) * (typeof x === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true }));
  };
  const head = document.querySelector("#runs-table thead tr");
  add(head, "th", { scope: "col" }, "picture");
  for (const [name, label] of columns) {
    const cell = add(head, "th", { scope: "col" }), button = add(cell, "button", { type: "button" }, label);
    button.addEventListener("click", () => {
      [sorted, isUp] = [name, sorted === name ? !isUp : name === "title"];
      history.replaceState(null, "", `#${sorted}-${isUp ? "up" : "down"}`);
      draw();
    });
    cell.dataset.name = name;
  }
  add(head, "th", { scope: "col" }, "compare");
  function draw() {
    for (const cell of head.children) {
      if (cell.dataset.name) cell.setAttribute("aria-sort", cell.dataset.name === sorted ? (isUp ? "ascending" : "descending") : "none");
    }
    body.replaceChildren();
    for (const row of [...rows].sort(before)) {
      const line = add(body, "tr"), picture = add(line, "td");
      if (row.picture) add(picture, "img", { src: row.picture, alt: "", width: 160, loading: "lazy" });
      const name = add(line, "th", { scope: "row" });
      if (row.problem) {
        name.textContent = row.title;
        add(name, "small", {}, ` ${row.problem}`);
      } else {
        add(name, "a", { href: `/?run=${row.number}` }, row.title);
        add(add(name, "div"), "small", {}, row.about);
      }
      add(line, "td", {}, row.state);
      for (const metric of ["updates", "entropy", "normalized", "support"]) {
        const value = row[metric];
        add(line, "td", {}, value === null || value === undefined ? "" : metric === "updates" ? value.toLocaleString("en") : value.toFixed(metric === "support" ? 1 : 3));
      }
      const choose = add(line, "td");
      if (row.problem) continue;
      const box = add(choose, "input", { type: "checkbox", "aria-label": `compare ${row.title}` });
      box.checked = chosen.has(row.number);
      box.addEventListener("change", () => {
        box.checked ? chosen.add(row.number) : chosen.delete(row.number);
        compare.disabled = chosen.size === 0;
        document.getElementById("chosen").textContent = chosen.size ? `${chosen.size} chosen` : "none chosen";
      });
    }
  }
  compare.addEventListener("click", () => {
    location.assign(`/?${[...chosen].map((number) => `run=${number}`).join("&")}`);
  });
  draw();
  if (rows.some((row) => row.state === "training")) setTimeout(() => chosen.size || location.reload(), 5000);
})();
