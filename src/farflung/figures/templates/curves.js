"use strict";
// A chart of curves that can be read with the pointer or the arrow keys. All text is set as text, never as HTML.
const addTo = (parent, element, properties = {}, text) => {
  for (const [name, value] of Object.entries(properties)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
};
const drawChart = (() => {
  const COLORS = ["#2563a8", "#d9730d", "#2f8f5b", "#b3261e", "#8250df", "#0e7490"], LIGHTER = ["#7db4f0", "#f0a35c", "#6fca97", "#f08b84", "#b99cf5", "#5cc3dc"];
  const DASHES = ["none", "8 4", "2 3", "9 3 2 3"];
  const HEIGHT = 290, LEFT = 74, RIGHT = 28, TOP = 12, FOOT = HEIGHT - 48;
  const isDark = matchMedia("(prefers-color-scheme: dark)"), readAt = new WeakMap();
  const shade = (color) => (isDark.matches ? LIGHTER[COLORS.indexOf(color)] ?? `color-mix(in srgb, ${color} 50%, white)` : color);
  const grouped = (number) => Math.round(number).toLocaleString("en");
  const short = (number) => (!Number.isFinite(number) ? "no value" : Math.abs(number) >= 1000 ? grouped(number) : String(+number.toPrecision(4)));
  const tickText = (number) => (Math.abs(number) >= 1e6 ? number.toLocaleString("en", { notation: "compact" }) : short(number));
  const add = (parent, tag, ...rest) => addTo(parent, document.createElementNS("http://www.w3.org/2000/svg", tag), ...rest);
  function ticks(low, high, number, least = 0) {
    const rough = Math.max((high - low) / number, least), power = 10 ** Math.floor(Math.log10(rough)), step = [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
    const found = [];
    for (let value = Math.ceil(low / step) * step; value <= high + 1e-9 * step; value += step) found.push(Math.abs(value) < 1e-12 ? 0 : value);
    return found;
  }
  function powers(low, high, number) {
    const factors = high / low >= 100 ? [1] : high / low < 30 || number > 3 ? [1, 2, 5] : [1, 3], found = [];
    for (let power = 10 ** Math.floor(Math.log10(low)); power <= high; power *= 10) found.push(...factors.map((factor) => factor * power).filter((value) => value >= low && value <= high));
    const every = Math.ceil(found.length / (number + 2));
    return found.filter((_, index) => index % every === 0);
  }
  const nearest = (xs, wanted) => xs.reduce((best, x, index) => (Math.abs(x - wanted) < Math.abs(xs[best] - wanted) ? index : best), 0);

  // lines: title, xs, ys and, if there are any, color, dash, low and high (a band) or rows (thin lines) and their rowTitles; levels: title, value, dash, and
  // color or the number of the line whose color they have.
  // scale: where the horizontal axis begins: at zero, or at the first place ("cut", or "log" for a logarithmic axis).
  return (container, reading, { lines, levels = [], title, across, down, unit, before = "after", scale = "zero" }) => {
    const hadFocus = container.contains(document.activeElement), wasRead = readAt.get(container);
    container.replaceChildren();
    const values = [...lines.flatMap((line) => [...line.ys, ...(line.low ?? []), ...(line.high ?? []), ...(line.rows ?? []).flat()]), ...levels.map((level) => level.value)].filter(Number.isFinite);
    if (!values.length) return null;
    let low = values.reduce((a, b) => Math.min(a, b)), high = values.reduce((a, b) => Math.max(a, b));
    if (high - low < 1e-9) [low, high] = [low - 0.5, high + 0.5];
    const last = Math.max(...lines.map((line) => line.xs.at(-1))), first = scale === "zero" ? 0 : Math.min(...lines.map((line) => line.xs[0])), isLog = scale === "log" && last > first;
    const share = (x) => (isLog ? Math.log(x / first) / Math.log(last / first) : (x - first) / (last - first || 1)), pad = 0.05 * (high - low), muted = getComputedStyle(container).getPropertyValue("--muted");
    const width = Math.max(320, Math.min(container.clientWidth, 1100)), foot = FOOT;
    const strokeOf = (line, number) => shade(line.color ?? COLORS[number % COLORS.length]), dashOf = (line, number) => line.dash ?? DASHES[Math.floor(number / COLORS.length) % DASHES.length];
    const toX = (x) => LEFT + (width - LEFT - RIGHT) * share(x), toY = (y) => foot - ((foot - TOP) * (y - low + pad)) / (high - low + 2 * pad);
    const root = add(container, "svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, role: "img", tabindex: 0 });
    const ends = lines.map((line) => `${line.title} ends at ${short(line.ys.at(-1))}`).join("; ");
    root.setAttribute("aria-label", `${title} against ${across}: ${ends}. Arrow keys read the curves.`);
    add(root, "path", { class: "frame", d: `M${LEFT} ${TOP}V${foot}H${width - RIGHT}` });
    for (const value of ticks(low - pad, high + pad, 5)) {
      add(root, "path", { class: "frame", d: `M${LEFT} ${toY(value)}H${width - RIGHT}`, opacity: 0.5 });
      add(root, "text", { x: LEFT - 8, y: toY(value) + 4, "text-anchor": "end" }, short(value));
    }
    const isWhole = lines.every((line) => line.xs.every(Number.isInteger)), most = width < 600 ? 4 : 6;
    for (const value of isLog ? powers(first, last, most) : ticks(first, last, most, isWhole ? 1 : 0)) add(root, "text", { x: toX(value), y: foot + 20, "text-anchor": "middle" }, tickText(value));
    if (down) add(root, "text", { x: -(TOP + foot) / 2, y: 12, transform: "rotate(-90)", "text-anchor": "middle" }, down);
    const name = add(root, "text", { y: foot + 38, "text-anchor": "middle" }, across);
    name.setAttribute("x", Math.min((LEFT + width) / 2, width - name.getComputedTextLength() / 2 - 2));
    // Where a value is missing, the line breaks off.
    const path = (xs, ys) => ys.map((y, index) => (Number.isFinite(y) ? `${index && Number.isFinite(ys[index - 1]) ? "L" : "M"}${toX(xs[index]).toFixed(1)} ${toY(y).toFixed(1)}` : "")).join("");
    const levelStroke = (level) => (level.line === undefined ? (level.color ? shade(level.color) : muted) : strokeOf(lines[level.line], level.line));
    for (const level of levels) add(root, "path", { d: `M${LEFT} ${toY(level.value)}H${width - RIGHT}`, stroke: levelStroke(level), "stroke-dasharray": level.dash, fill: "none" });
    lines.forEach((line, number) => {
      const stroke = strokeOf(line, number);
      if (line.low) {
        const there = [...line.xs.keys()].filter((index) => Number.isFinite(line.low[index]) && Number.isFinite(line.high[index])), back = [...there].reverse();
        const [bottom, top] = [path(there.map((index) => line.xs[index]), there.map((index) => line.low[index])), path(back.map((index) => line.xs[index]), back.map((index) => line.high[index]))];
        if (there.length) add(root, "path", { d: `${bottom}${top.replace("M", "L")}Z`, fill: stroke, opacity: 0.18 });
      }
      for (const row of line.rows ?? []) add(root, "path", { d: path(line.xs, row), stroke, fill: "none", "stroke-width": 1, opacity: 0.45 });
      add(root, "path", { d: path(line.xs, line.ys), stroke, fill: "none", "stroke-width": 2.2, "stroke-dasharray": dashOf(line, number) });
    });
    const keys = addTo(container, document.createElement("ul"), { class: "keys" });
    const entries = [...lines.map((line, number) => [line.title, strokeOf(line, number), dashOf(line, number)]), ...levels.map((level) => [level.title, levelStroke(level), level.dash])];
    for (const [title, stroke, dash] of entries) {
      const entry = addTo(keys, document.createElement("li")), sample = add(entry, "svg", { width: 24, height: 10, "aria-hidden": "true" });
      add(sample, "path", { d: "M0 5h24", stroke, fill: "none", "stroke-width": 2.2, "stroke-dasharray": dash ?? "none" });
      entry.append(title);
    }
    const mark = add(root, "path", { class: "hover", d: "" }), cursor = add(root, "path", { class: "hover", d: "" });
    // Places of the line that reaches farthest are read; lines that have none there are left out.
    const main = lines.reduce((best, line) => (line.xs.at(-1) > best.xs.at(-1) ? line : best)), has = ({ xs }, x) => xs[0] <= x && x <= xs.at(-1);
    let at = main.xs.length - 1;
    const read = (wanted) => {
      readAt.set(container, wanted);
      at = nearest(main.xs, wanted);
      const x = main.xs[at];
      cursor.setAttribute("d", `M${toX(x)} ${TOP}V${foot}`);
      const texts = lines.filter((line) => has(line, x)).map((line) => {
        const index = nearest(line.xs, x), range = line.low ? ` (${short(line.low[index])} to ${short(line.high[index])})` : "";
        const each = line.rowTitles ? ` (${line.rows.map((row, number) => `${line.rowTitles[number]} ${short(row[index])}`).join(", ")})` : "";
        return `${line.title} ${short(line.ys[index])}${range}${each}`;
      });
      texts.push(...levels.map((level) => `${level.title} ${short(level.value)}`));
      reading.textContent = `${before} ${short(x)} ${unit}: ${texts.join("; ")}`;
    };
    const follow = (event) => {
      const bounds = root.getBoundingClientRect(), place = (((event.clientX - bounds.left) / bounds.width) * width - LEFT) / (width - LEFT - RIGHT), inside = Math.min(Math.max(place, 0), 1);
      read(isLog ? first * (last / first) ** inside : first + inside * (last - first));
    };
    for (const kind of ["pointerdown", "pointermove"]) root.addEventListener(kind, follow);
    root.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      read(main.xs[Math.min(Math.max(at + step, 0), main.xs.length - 1)]);
    });
    for (const kind of ["pointerleave", "blur"]) {
      root.addEventListener(kind, (event) => {
        if (!root.isConnected || event.pointerType === "touch" || (kind === "pointerleave" && document.activeElement === root)) return;
        readAt.delete(container);
        cursor.setAttribute("d", "");
        reading.textContent = "";
      });
    }
    // Drawn again, as while a training goes on: a reader stays where she was.
    if (hadFocus) root.focus({ preventScroll: true });
    if (wasRead !== undefined) read(wasRead);
    return { mark: (x) => mark.setAttribute("d", `M${toX(Math.min(x, last))} ${TOP}V${foot}`) };
  };
})();
