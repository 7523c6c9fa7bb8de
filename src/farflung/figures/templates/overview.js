"use strict";
// A sortable table of runs. All text from a run is set as text, never as HTML.
(() => {
  const POLL_SECONDS = 2, PICTURE = 96;
  let rows = JSON.parse(document.getElementById("runs").textContent);
  const columns = [["title", "run"], ["state", "state"], ["updates", "updates"], ["entropy", "entropy (nats)"], ["normalized", "entropy / log(states or cells)"], ["support", "states or cells visited"]];
  const body = document.querySelector("#runs-table tbody"), compare = document.getElementById("compare"), chosen = new Set();
  // The order is kept in the address, for whoever comes back to this page.
  const [kept, direction] = location.hash.slice(1).split("-");
  let sorted = columns.some(([name]) => name === kept) ? kept : "title", isUp = direction !== "down";
  const add = (parent, tag, ...rest) => addTo(parent, document.createElement(tag), ...rest);
  const before = (a, b) => {
    const [x, y] = [a[sorted] ?? null, b[sorted] ?? null];
    if (x === null || y === null) return (x === null) - (y === null);
    return (isUp ? 1 : -1) * (typeof x === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true }));
  };
  const head = document.querySelector("#runs-table thead tr");
  add(head, "th", { scope: "col" }, "compare");
  add(head, "th", { scope: "col" }, "visits at the end");
  for (const [name, label] of columns) {
    const cell = add(head, "th", { scope: "col" }), button = add(cell, "button", { type: "button" }, label);
    button.addEventListener("click", () => {
      [sorted, isUp] = [name, sorted === name ? !isUp : name === "title"];
      history.replaceState(null, "", `#${sorted}-${isUp ? "up" : "down"}`);
      draw();
    });
    cell.dataset.name = name;
  }
  // The share of visits to each cell, in ten shades; a dot stands for a wall.
  function drawPicture(parent, { columns, rows, shades }, title) {
    const size = Math.max(1, Math.floor((PICTURE * (devicePixelRatio || 1)) / Math.max(columns, rows))), canvas = add(parent, "canvas", { role: "img", "aria-label": `visits of ${title}` });
    const context = canvas.getContext("2d"), style = getComputedStyle(document.documentElement), themed = (name) => style.getPropertyValue(name).trim();
    [canvas.width, canvas.height] = [columns * size, rows * size];
    canvas.style.width = `${(PICTURE * columns) / Math.max(columns, rows)}px`;
    context.fillStyle = themed("--closed");
    context.fillRect(0, 0, canvas.width, canvas.height);
    for (let cell = 0; cell < shades.length; cell++) {
      if (shades[cell] === ".") continue;
      const place = [(cell % columns) * size, Math.floor(cell / columns) * size, size, size];
      context.fillStyle = themed("--free");
      context.fillRect(...place);
      context.fillStyle = `rgba(${themed("--seen")}, ${+shades[cell] / 9})`;
      context.fillRect(...place);
    }
  }
  function draw() {
    const focused = document.activeElement?.dataset.focus;
    document.getElementById("none").hidden = rows.length > 0;
    compare.disabled = chosen.size === 0;
    document.getElementById("chosen").textContent = chosen.size ? `${chosen.size} chosen` : "none chosen";
    for (const cell of head.children) {
      if (cell.dataset.name) cell.setAttribute("aria-sort", cell.dataset.name === sorted ? (isUp ? "ascending" : "descending") : "none");
    }
    body.replaceChildren();
    for (const row of [...rows].sort(before)) {
      const line = add(body, "tr"), choose = add(line, "td"), picture = add(line, "td");
      if (row.picture) drawPicture(picture, row.picture, row.title);
      const name = add(line, "th", { scope: "row" });
      if (row.problem) {
        name.textContent = row.title;
        add(name, "small", {}, ` ${row.problem}`);
      } else {
        add(name, "a", { href: `/?run=${row.number}`, "data-focus": `run ${row.number}` }, row.title);
        add(add(name, "div"), "small", {}, row.about);
      }
      add(line, "td", {}, row.problem ? "cannot be read" : row.state);
      for (const metric of ["updates", "entropy", "normalized", "support"]) {
        const value = row[metric];
        add(line, "td", {}, value === null || value === undefined ? "" : metric === "updates" ? value.toLocaleString("en") : value.toFixed(metric === "support" ? 1 : 3));
      }
      if (row.problem) continue;
      const box = add(choose, "input", { type: "checkbox", "aria-label": `compare ${row.title}`, "data-focus": `box ${row.number}` });
      box.checked = chosen.has(row.number);
      box.addEventListener("change", () => {
        box.checked ? chosen.add(row.number) : chosen.delete(row.number);
        draw();
      });
    }
    if (focused) body.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }
  compare.addEventListener("click", () => {
    location.assign(`/?${[...chosen].map((number) => `run=${number}`).join("&")}`);
  });
  // Runs are trained, begun and finished while the table is open.
  async function poll() {
    const [isWell, news] = await asked("/rows");
    if (isWell && JSON.stringify(news) !== JSON.stringify(rows)) {
      rows = news;
      draw();
    }
    tell(document.getElementById("news"), isWell ? "" : news.error);
    setTimeout(poll, 1000 * POLL_SECONDS);
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
  poll();
})();
