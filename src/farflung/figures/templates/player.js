"use strict";
// Draws the page of one or several runs. All text from a run is set as text, never as HTML.
(() => {
  const byId = (id) => document.getElementById(id);
  const AGENT_COLORS = ["#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf"];
  const FLATTEST = 0.2; // a plane that is flatter is not drawn to scale
  const SVG = "http://www.w3.org/2000/svg";
  const ENDED = 65535, TRACED = 0.25, EPISODE_SECONDS = 6, POLL_SECONDS = 1, SELDOM_SECONDS = 5;
  const STAYS = 0.15; // in cells: an action that leads less far on average has a dot, not an arrow
  const wantsCalm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  let runs = JSON.parse(byId("runs").textContent);
  let panels = [], bodies = [], isPlaying = false, lastFrame = 0, progress = 0;

  const add = (parent, tag, ...rest) => addTo(parent, document.createElement(tag), ...rest);
  const options = (select, pairs) => {
    const kept = select.value;
    if (JSON.stringify(pairs.map(([value, text]) => [String(value), text])) === JSON.stringify([...select.options].map((each) => [each.value, each.text]))) return;
    select.replaceChildren();
    for (const [value, text] of pairs) add(select, "option", { value }, text);
    if (pairs.some(([value]) => String(value) === kept)) select.value = kept;
  };
  const grouped = (number) => Math.round(number).toLocaleString("en");
  const counted = (number, thing) => `${number} ${thing}${number === 1 ? "" : "s"}`;
  const finite = (values) => values.filter(Number.isFinite);
  const mean = (values) => (finite(values).length ? finite(values).reduce((sum, value) => sum + value, 0) / finite(values).length : null);
  const color = (number, many) => (many <= AGENT_COLORS.length ? AGENT_COLORS[number] : `hsl(${(360 * number) / many} 70% 50%)`);
  const themed = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // Points of a few episodes: 16-bit numbers [episode, path, time, axis] across the plane's view.
  const decoded = new WeakMap();
  const points = (scene) => {
    if (!decoded.has(scene)) {
      const bytes = Uint8Array.from(atob(scene.points), (letter) => letter.charCodeAt(0));
      decoded.set(scene, new Uint16Array(bytes.buffer));
    }
    return decoded.get(scene);
  };
  const place = (run, scene, episode, path, time) => {
    const [, paths, times] = scene.shape, start = 2 * ((episode * paths + path) * times + time), all = points(scene);
    if (all[start] === ENDED) return null;
    const [left, bottom, right, top] = run.plane.view;
    return [left + ((right - left) * all[start]) / (ENDED - 1), bottom + ((top - bottom) * all[start + 1]) / (ENDED - 1)];
  };
  // For each episode the last time that is worth showing: the end, or the time after all paths have ended.
  // A scene has so many numbers for each time of a path.
  const ends = new WeakMap();
  const endsOf = (scene, [episodes, paths, times] = scene.shape, numbers = 2) => {
    if (!ends.has(scene)) {
      const all = points(scene), each = Array.from({ length: paths }, (_, path) => path);
      const isThere = (episode, time) => each.some((path) => all[numbers * ((episode * paths + path) * times + time)] !== ENDED);
      ends.set(scene, Array.from({ length: episodes }, (_, episode) => {
        let last = times - 1;
        while (last > 0 && !isThere(episode, last)) last--;
        return Math.min(last + 1, times - 1);
      }));
    }
    return ends.get(scene);
  };
  const cellOf = (plane, [x, y]) => {
    const share = (value, axis) => (value - plane.low[axis]) / (plane.high[axis] - plane.low[axis]);
    const clip = (value, size) => Math.min(Math.max(Math.floor(value * size), 0), size - 1);
    return clip(share(x, 0), plane.columns) * plane.rows + clip(share(y, 1), plane.rows);
  };

  // What can be shown: each run's team, and what lies beside it to compare it with.
  const NOTHING = { label: "before the first update", update: null, kind: "agent", stride: 1, shape: [1, 0, 1], points: "" };
  const scenesOf = (run) => {
    if (!run.plane) return [];
    const scenes = [], scene = (run, title, moments, isTeam) => scenes.push({ run, title, moments, isTeam, key: `${runs.indexOf(run)} ${title}` });
    scene(run, run.title, run.playback?.moments ?? [NOTHING], true);
    const of = runs.length > 1 ? ` (${run.title})` : "";
    for (const [title, moment] of Object.entries(run.playback?.others ?? {})) scene(run, title + of, [moment], false);
    for (const other of run.beside) if (other.plane && other.playback) scene(other, other.who ? `${other.title}: ${other.who}` : other.title, other.playback.moments, false);
    return scenes;
  };
  const momentOf = (panel) => {
    const position = +byId("moment").value / Math.max(1, +byId("moment").max);
    return panel.moments[Math.round(position * (panel.moments.length - 1))];
  };

  let hasBegun = false;
  function build() {
    byId("introduction").textContent = runs.map((run) => (runs.length > 1 ? `${run.title}: ${run.about}` : run.about)).join(" ");
    const all = runs.flatMap(scenesOf), extra = all.filter((scene) => !scene.isTeam);
    byId("player").hidden = all.length === 0;
    byId("compare").hidden = extra.length === 0;
    const labels = new Map([...byId("compare").querySelectorAll("label")].map((label) => [label.firstChild.value, label]));
    for (const [key, label] of labels) if (!extra.some((scene) => scene.key === key)) label.remove();
    for (const { title, key } of extra) {
      if (labels.has(key)) continue;
      const label = add(byId("compare"), "label"), box = add(label, "input", { type: "checkbox", value: key });
      box.checked = runs.length === 1;
      box.addEventListener("change", () => {
        buildPanels();
        draw();
      });
      label.append(title);
    }
    buildPanels();
    if (all.length) {
      const most = Math.max(...all.map((scene) => scene.moments.length)), teams = all.filter((scene) => scene.isTeam).map((scene) => scene.moments[0]);
      const wasLast = +byId("moment").value === +byId("moment").max;
      byId("moment").max = most - 1;
      if (wasLast) byId("moment").value = most - 1;
      const isAtEnd = progress >= +byId("time").max;
      byId("time").max = Math.max(...all.flatMap((scene) => scene.moments.flatMap((moment) => endsOf(moment))), ...runs.filter((run) => run.body).map(endOfBodies));
      if (isAtEnd) progress = +byId("time").max;
      const largest = teams.reduce((best, moment) => (moment.shape[1] > best.shape[1] ? moment : best)), { kind } = largest;
      const [paths, episodes] = [largest.shape[1], Math.max(...teams.map((moment) => moment.shape[0]))];
      options(byId("episode"), Array.from({ length: episodes }, (_, number) => [number, `${number + 1} of ${episodes}`]));
      options(byId("agent"), [["all", "all"], ...Array.from({ length: paths }, (_, number) => [number, `${kind} ${number + 1}`])]);
      if (byId("agents").children.length !== (paths <= AGENT_COLORS.length ? paths : 0)) {
        byId("agents").replaceChildren();
        for (let number = 0; number < paths && paths <= AGENT_COLORS.length; number++) {
          const entry = add(add(byId("agents"), "li"), "button", { type: "button", title: `show ${kind} ${number + 1} alone, or all` });
          const dot = addTo(entry, document.createElementNS(SVG, "svg"), { width: 10, height: 10, "aria-hidden": "true" });
          addTo(dot, document.createElementNS(SVG, "circle"), { cx: 5, cy: 5, r: 4.5, fill: color(number, paths) });
          entry.append(`${kind} ${number + 1}`);
          entry.addEventListener("click", () => {
            byId("agent").value = byId("agent").value === String(number) ? "all" : number;
            draw();
          });
        }
      }
      const layers = [["episode", "this episode"], ["visits", `visits in ${counted(episodes, "episode")}`]];
      if (runs.some((run) => run.arrows)) layers.push(["arrows", "the trained policy"]);
      options(byId("layer"), layers);
    }
    byId("bodies").replaceChildren();
    bodies = runs.filter((run) => run.body).map((run) => {
      const figure = add(byId("bodies"), "figure"), canvas = add(figure, "canvas", { role: "img" });
      return { run, canvas, caption: add(figure, "figcaption") };
    });
    byId("space").hidden = bodies.length === 0;
    buildCurves();
    buildAbout();
    if (panels.some((panel) => panel.moments[0] !== NOTHING) && !hasBegun) {
      hasBegun = true;
      byId("moment").value = byId("moment").max;
      progress = +byId("time").max;
      if (!wantsCalm) play();
    }
    draw();
  }
  function buildPanels() {
    const isShown = new Set([...document.querySelectorAll("#compare input:checked")].map((box) => box.value));
    byId("panels").replaceChildren();
    panels = runs.flatMap(scenesOf).filter((scene) => scene.isTeam || isShown.has(scene.key)).map((scene) => {
      const figure = add(byId("panels"), "figure"), canvas = add(figure, "canvas", { role: "img" });
      return { ...scene, canvas, caption: add(figure, "figcaption") };
    });
  }

  const endOfBodies = ({ body, playback }) => {
    const [paths, times, limbs] = body.shape;
    return Math.ceil((endsOf(body, [1, paths, times], 6 * limbs)[0] * body.stride) / (playback?.moments[0].stride ?? 1));
  };
  // Bodies in space, seen from the side and a little from above; the camera follows them, and lines lie on the ground, a metre apart.
  const TILT = 0.35, METRES_SEEN = 2.4, MARGIN = 1.25, MOST_LINES = 60;
  function drawBodies({ run, canvas, caption }) {
    const { body } = run, [paths, times, limbs] = body.shape, all = points(body), agent = byId("agent").value, yaw = (+byId("yaw").value * Math.PI) / 180;
    const time = Math.min(Math.round((progress * momentOf(panels[0]).stride) / body.stride), times - 1);
    const startOf = (path, moment, limb, end) => 3 * (2 * ((path * times + moment) * limbs + limb) + end);
    const lasts = Array.from({ length: paths }, (_, path) => {
      let last = time;
      while (last > 0 && all[startOf(path, last, 0, 0)] === ENDED) last--;
      return last;
    });
    const at = (path, limb, end) => {
      const start = startOf(path, lasts[path], limb, end);
      return [0, 1, 2].map((axis) => body.low[axis] + ((body.high[axis] - body.low[axis]) * all[start + axis]) / (ENDED - 1));
    };
    const shown = lasts.map((_, path) => path).filter((path) => agent === "all" || +agent >= paths || path === +agent);
    const moving = shown.filter((path) => lasts[path] === time).length;
    const turned = ([x, y, z]) => {
      const across = x * Math.cos(yaw) + y * Math.sin(yaw), depth = y * Math.cos(yaw) - x * Math.sin(yaw);
      return [across, z * Math.cos(TILT) + depth * Math.sin(TILT), depth * Math.cos(TILT) - z * Math.sin(TILT)];
    };
    const width = canvas.clientWidth || 320, height = Math.round(0.6 * width), ratio = devicePixelRatio || 1, context = canvas.getContext("2d");
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    canvas.style.height = `${height}px`;
    context.scale(ratio, ratio);
    context.fillStyle = themed("--free");
    context.fillRect(0, 0, width, height);
    const text = `after the last update, step ${time * body.stride} of ${run.horizon}: ${moving === shown.length ? `${moving} of ${paths} bodies` : `${shown.length - moving} of ${shown.length} episodes have ended`}`;
    caption.replaceChildren();
    add(caption, "b", {}, run.title);
    caption.append(text);
    canvas.setAttribute("aria-label", `${run.title} in space, ${text}`);
    const pieces = shown.flatMap((path) => Array.from({ length: limbs }, (_, limb) => ({ path, limb, ends: [0, 1].map((end) => at(path, limb, end)) })));
    const seen = pieces.flatMap((piece) => piece.ends.map(turned)), range = (axis) => seen.reduce(([low, high], point) => [Math.min(low, point[axis]), Math.max(high, point[axis])], [Infinity, -Infinity]);
    const [[left, right], [bottom, top]] = [range(0), range(1)], middle = [(left + right) / 2, (bottom + top) / 2];
    const scale = Math.min(width / Math.max(MARGIN * (right - left), METRES_SEEN), height / Math.max(MARGIN * (top - bottom), 0.6 * METRES_SEEN));
    const toScreen = ([x, y]) => [width / 2 + scale * (x - middle[0]), height / 2 - scale * (y - middle[1])];
    const line = (from, to) => {
      context.beginPath();
      context.moveTo(...toScreen(turned(from)));
      const [x, y] = toScreen(turned(to));
      context.lineTo(x + 0.01, y); // a canvas draws no line of length zero, such as that of a ball
      context.stroke();
    };
    const centre = [0, 1].map((axis) => mean(pieces.map((piece) => piece.ends[0][axis]))), reach = (1.5 * (width + height)) / scale, step = Math.ceil((2 * reach) / MOST_LINES), far = step * Math.ceil(reach / step);
    context.strokeStyle = themed("--grid");
    for (let number = -far; number <= far; number += step) {
      const [x, y] = centre.map((value) => Math.round(value / step) * step + number), [x0, y0] = centre;
      line([x, y0 - far, 0], [x, y0 + far, 0]);
      line([x0 - far, y, 0], [x0 + far, y, 0]);
    }
    context.lineCap = "round";
    pieces.sort((a, b) => turned(b.ends[0])[2] + turned(b.ends[1])[2] - turned(a.ends[0])[2] - turned(a.ends[1])[2]);
    for (const { path, limb, ends } of pieces) {
      context.globalAlpha = lasts[path] === time ? 1 : 0.45; // a body whose episode has ended
      for (const [style, wider] of [[themed("--text"), 2], [color(path, paths), 0]]) {
        context.strokeStyle = style;
        context.lineWidth = Math.max(2, 2 * scale * body.radii[limb]) + wider;
        line(...ends);
      }
    }
  }

  // One panel: cells, walls, arrows, traces and agents.
  function drawPanel(panel, isStill) {
    const { run, canvas } = panel, { plane } = run, scene = momentOf(panel), [episodes, paths, times] = scene.shape;
    const [left, bottom, right, top] = plane.view, shape = (top - bottom) / (right - left);
    const isToScale = plane.isToScale && shape > FLATTEST, hasAxes = plane.names.some(Boolean), edge = 6;
    const [before, below] = hasAxes ? [48, 40] : [edge, edge]; // room for the numbers and names of the axes
    const width = canvas.clientWidth || 320, inner = width - before - edge, innerHeight = Math.max(60, Math.min(inner * (isToScale ? shape : 0.75), 720));
    const height = innerHeight + below + edge, ratio = devicePixelRatio || 1;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    canvas.style.height = `${height}px`;
    const context = canvas.getContext("2d"), agent = byId("agent").value, layer = byId("layer").value;
    const scale = Math.min(inner / (right - left), innerHeight / (top - bottom));
    const [scaleX, scaleY] = isToScale ? [scale, scale] : [inner / (right - left), innerHeight / (top - bottom)];
    const shiftX = before + (inner - scaleX * (right - left)) / 2, shiftY = edge + (innerHeight - scaleY * (top - bottom)) / 2;
    const toX = (x) => shiftX + scaleX * (x - left), toY = plane.rowsPointDown ? (y) => shiftY + scaleY * (y - bottom) : (y) => shiftY + scaleY * (top - y);
    const box = (x0, x1, y0, y1) => [toX(x0), Math.min(toY(y0), toY(y1)), scaleX * (x1 - x0), scaleY * (y1 - y0)];
    const now = Math.min(Math.round(progress), times - 1), episode = Math.min(+byId("episode").value, episodes - 1);
    const shown = Array.from({ length: paths }, (_, path) => path).filter((path) => agent === "all" || +agent >= paths || path === +agent);
    context.scale(ratio, ratio);
    context.fillStyle = themed("--closed");
    context.fillRect(...box(plane.low[0], plane.high[0], plane.low[1], plane.high[1]));

    const counts = new Map(), seen = layer === "visits" ? episodes : 1;
    let most = 0, total = 0;
    for (let number = 0; number < seen; number++) {
      for (const path of shown) {
        for (let time = 0; time <= (layer === "visits" ? times - 1 : now); time++) {
          const at = place(run, scene, layer === "visits" ? number : episode, path, time);
          if (!at) break;
          const cell = cellOf(plane, at), count = (counts.get(cell) || 0) + 1;
          counts.set(cell, count);
          most = Math.max(most, count);
          total++;
        }
      }
    }
    const cellWidth = (plane.high[0] - plane.low[0]) / plane.columns, cellHeight = (plane.high[1] - plane.low[1]) / plane.rows;
    const isGrid = plane.isMap && plane.columns * plane.rows <= 1600;
    for (let column = 0; column < plane.columns; column++) {
      for (let row = 0; row < plane.rows; row++) {
        const cell = column * plane.rows + row, count = layer === "arrows" ? 0 : counts.get(cell) || 0;
        if (plane.free[cell] !== "1" && !count) continue;
        const x = plane.low[0] + column * cellWidth, y = plane.low[1] + row * cellHeight, area = box(x, x + cellWidth, y, y + cellHeight);
        context.fillStyle = themedCells.free;
        context.fillRect(area[0] - 0.3, area[1] - 0.3, area[2] + 0.6, area[3] + 0.6);
        if (count) {
          context.fillStyle = `rgba(${themedCells.seen}, ${layer === "visits" ? 0.12 + 0.78 * Math.sqrt(count / most) : 0.3})`;
          context.fillRect(area[0] - 0.3, area[1] - 0.3, area[2] + 0.6, area[3] + 0.6);
        }
        if (isGrid) {
          context.strokeStyle = themedCells.grid;
          context.strokeRect(...area);
        }
      }
    }
    context.fillStyle = themed("--wall");
    for (const [x0, x1, y0, y1] of plane.walls) {
      const area = box(x0, x1, y0, y1);
      context.fillRect(area[0] - 1, area[1] - 1, area[2] + 2, area[3] + 2);
    }
    context.globalAlpha = 0.4; // walls of some episodes only
    for (const [x0, x1, y0, y1] of plane.shiftingWalls) context.fillRect(...box(x0, x1, y0, y1));
    context.globalAlpha = 1;
    context.fillStyle = context.strokeStyle = themed("--mark");
    context.font = `bold ${Math.max(10, Math.min(16, scaleX * cellWidth * 0.6))}px system-ui, sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (const [letter, x, y] of plane.letters) context.fillText(letter, toX(x), toY(y));
    for (const [x0, x1, y0, y1] of plane.goals) {
      context.fillText("G", toX((x0 + x1) / 2), toY((y0 + y1) / 2));
      if (!plane.isMap) {
        context.beginPath();
        context.ellipse(toX((x0 + x1) / 2), toY((y0 + y1) / 2), Math.abs(toX(x1) - toX(x0)) / 2, Math.abs(toY(y1) - toY(y0)) / 2, 0, 0, 2 * Math.PI);
        context.stroke();
      }
    }
    if (hasAxes) drawAxes(context, plane, box(plane.low[0], plane.high[0], plane.low[1], plane.high[1]));
    if (layer === "arrows" && panel.isTeam && run.arrows) drawArrows(context, run.arrows, agent, now, toX, toY, scaleX);

    const offset = plane.isMap && paths > 1 ? 0.22 : 0;
    const at = (path, time) => {
      const found = place(run, scene, episode, path, time);
      if (!found) return null;
      const angle = (2 * Math.PI * path) / paths;
      return [toX(found[0] + offset * Math.cos(angle)), toY(found[1] + offset * Math.sin(angle))];
    };
    const traced = Math.max(2, Math.round(TRACED * times)), isJump = (a, b) => plane.wraps.some((wraps, axis) => wraps && Math.abs(a[axis] - b[axis]) > (axis ? height : width) / 2);
    context.lineWidth = 2;
    let ended = 0;
    for (const path of shown) {
      context.strokeStyle = context.fillStyle = color(path, paths);
      let last = null, until = now;
      while (until > 0 && !at(path, until)) until--;
      ended += until < now;
      for (let time = Math.max(0, until - traced); time <= until; time++) {
        const next = at(path, time);
        if (last && !isJump(last, next)) {
          context.globalAlpha = 0.15 + 0.85 * (1 - (until - time) / traced);
          context.beginPath();
          context.moveTo(...last);
          context.lineTo(...next);
          context.stroke();
        }
        last = next;
      }
      context.globalAlpha = 1;
      if (last) {
        context.beginPath();
        context.arc(...last, paths > 24 ? 3 : 5, 0, 2 * Math.PI);
        if (until === now) {
          context.fill();
          context.strokeStyle = themedCells.free;
          context.lineWidth = 1;
        }
        context.stroke(); // an episode that has ended leaves a ring
        context.lineWidth = 2;
      }
    }
    let entropy = 0;
    for (const count of counts.values()) entropy -= (count / total) * Math.log(count / total);
    const free = [...plane.free].filter((letter) => letter === "1").length;
    const hasArrows = layer === "arrows" && panel.isTeam && run.arrows;
    const arrowsOf = hasArrows
      ? `; arrows: the likeliest actions of agent ${agent === "all" ? 1 : Math.min(+agent, run.arrows.agents.length - 1) + 1} after the last update, ${grouped(run.updates.at(-1))}`
      : "";
    const isAllSteps = layer === "visits", seed = scene.update === null ? "" : `seed ${run.playback.seed}, `;
    const what = [...(scene.label === panel.title || panel.title.startsWith(`${scene.label} (`) ? [] : [scene.label]), `${seed}${isAllSteps ? counted(episodes, "episode") : `step ${now * scene.stride} of ${run.horizon}`}`];
    const found = paths
      ? `${what.join(", ")}: ${grouped(counts.size)} of ${grouped(free)} cells, entropy ${entropy.toFixed(2)} nats${isAllSteps || now === times - 1 || ended === shown.length ? "" : " so far"}${shown.length === paths ? ofBatch(run, scene) : ""}`
      : scene.label;
    const text = `${found}${arrowsOf}${ended && !isAllSteps ? `; ${ended} of ${shown.length} episodes have ended` : ""}`;
    panel.caption.replaceChildren();
    add(panel.caption, "b", {}, panel.title);
    panel.caption.append(text);
    if (isStill) canvas.setAttribute("aria-label", `${panel.title}; ${text}`);
    return `${panel.title}; ${text}`;
  }

  // The mean over the whole batch of that update, of which a page has a few episodes.
  function ofBatch(run, scene) {
    const record = scene.update === null ? -1 : run.updates.indexOf(scene.update), row = run.seeds.indexOf(run.playback.seed);
    const value = record < 0 ? undefined : run.metrics.entropy?.values[row]?.[record];
    return Number.isFinite(value) ? ` (mean of the batch's whole episodes: ${value.toFixed(2)})` : "";
  }

  // The border of a plane, the names of its features, and their values at both ends.
  function drawAxes(context, plane, [x, y, width, height]) {
    const ends = plane.low.map((low, axis) => [low, plane.high[axis]].map((value) => String(+value.toPrecision(3)).replace("-", "\u2212")));
    context.strokeStyle = context.fillStyle = themed("--muted");
    context.lineWidth = 1;
    context.strokeRect(x, y, width, height);
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "top";
    context.textAlign = "left";
    context.fillText(ends[0][0], x, y + height + 5);
    context.textAlign = "right";
    context.fillText(ends[0][1], x + width, y + height + 5);
    context.textAlign = "center";
    context.fillText(plane.names[0], x + width / 2, y + height + (width < 400 ? 21 : 5), width < 400 ? width : 0.8 * width);
    context.save();
    context.translate(x - 44, y + height / 2);
    context.rotate(-Math.PI / 2);
    context.fillText(plane.names[1], 0, 0, height);
    context.restore();
    context.textAlign = "right";
    context.fillText(ends[1][plane.rowsPointDown ? 0 : 1], x - 4, y);
    context.textBaseline = "bottom";
    context.fillText(ends[1][plane.rowsPointDown ? 1 : 0], x - 4, y + height);
  }

  function drawArrows(context, arrows, agent, now, toX, toY, scale) {
    const time = Math.min(now, arrows.times - 1), agents = agent === "all" ? [0] : [Math.min(+agent, arrows.agents.length - 1)];
    context.lineWidth = 2;
    for (const number of agents) {
      arrows.agents[number][time].forEach(([right, up, probability], state) => {
        const [x, y] = arrows.places[state];
        context.strokeStyle = context.fillStyle = color(number, arrows.agents.length);
        context.globalAlpha = 0.15 + 0.85 * probability;
        const reach = 0.32 * scale, from = [toX(x) - right * reach, toY(y) + up * reach], to = [toX(x) + right * reach, toY(y) - up * reach];
        context.beginPath();
        if (Math.hypot(right, up) < STAYS) {
          context.arc(toX(x), toY(y), 2, 0, 2 * Math.PI);
          context.fill();
          return;
        }
        context.moveTo(...from);
        context.lineTo(...to);
        const angle = Math.atan2(to[1] - from[1], to[0] - from[0]);
        for (const turn of [2.6, -2.6]) {
          context.moveTo(...to);
          context.lineTo(to[0] + 0.16 * scale * Math.cos(angle + turn), to[1] + 0.16 * scale * Math.sin(angle + turn));
        }
        context.stroke();
      });
    }
    context.globalAlpha = 1;
  }

  let themedCells = {};
  function draw() {
    if (!panels.length) return;
    themedCells = { free: themed("--free"), seen: themed("--seen"), grid: themed("--grid") };
    byId("time").value = Math.round(progress);
    byId("time-text").textContent = `${byId("time").value * momentOf(panels[0]).stride}`;
    byId("moment-text").textContent = momentOf(panels[0]).label;
    byId("moment").setAttribute("aria-valuetext", momentOf(panels[0]).label);
    byId("play").textContent = isPlaying ? "Pause" : "Play";
    const texts = panels.map((panel) => drawPanel(panel, !isPlaying));
    byId("yaw-text").textContent = `${byId("yaw").value}°`;
    bodies.forEach(drawBodies);
    if (!isPlaying) byId("status").textContent = texts[0];
    [...byId("agents").querySelectorAll("button")].forEach((button, number) => button.setAttribute("aria-pressed", byId("agent").value === String(number)));
    markMoment();
  }
  // When the longest of the episodes ends that are seen now.
  const lastSeen = () => {
    const ofScene = (scene) => endsOf(scene)[Math.min(+byId("episode").value, scene.shape[0] - 1)];
    return Math.max(1, ...panels.map((panel) => ofScene(momentOf(panel))), ...bodies.map(({ run }) => endOfBodies(run)));
  };
  function frame(stamp) {
    if (!isPlaying) return;
    const last = lastSeen();
    progress += ((stamp - lastFrame) / 1000) * (last / EPISODE_SECONDS);
    lastFrame = stamp;
    if (progress >= last) {
      progress = last;
      isPlaying = false;
    }
    draw();
    requestAnimationFrame(frame);
  }
  function play() {
    isPlaying = !isPlaying;
    if (isPlaying) {
      if (progress >= lastSeen()) progress = 0;
      lastFrame = performance.now();
      requestAnimationFrame(frame);
    }
    draw();
  }

  // Learning curves.
  let chart = null;
  const withCurves = () => runs.flatMap((run) => [run, ...run.beside]).filter((run) => run.updates.length);
  function buildCurves() {
    const all = withCurves();
    byId("curves").hidden = all.length === 0;
    if (!all.length) return;
    const labels = Object.assign({}, ...[...all].reverse().map((run) => Object.fromEntries(Object.entries(run.metrics).map(([name, metric]) => [name, metric.label]))));
    options(byId("metric"), Object.entries(labels));
    const seeds = [["mean", "mean and range"], ["each", "each seed"]];
    options(byId("seeds"), [...seeds, ...[...new Set(all.flatMap((run) => run.seeds))].map((seed) => [seed, `seed ${seed}`])]);
    drawCurves();
  }
  function drawCurves() {
    const metric = byId("metric").value, axis = byId("axis").value, choice = byId("seeds").value, lines = [], levels = [];
    withCurves().forEach((run) => {
      const found = run.metrics[metric];
      if (!found) return;
      const rows = choice === "mean" || choice === "each" ? found.values : found.values.filter((_, row) => run.seeds[row] === +choice);
      if (!rows.length) return;
      const line = { title: run.title, xs: run[axis], ys: run[axis].map((_, record) => mean(rows.map((row) => row[record]))) };
      if (choice === "each") [line.rows, line.rowTitles] = [rows, run.seeds.map((seed) => `seed ${seed}`)];
      if (choice === "mean" && rows.length > 1) {
        line.low = line.xs.map((_, record) => Math.min(...finite(rows.map((row) => row[record]))));
        line.high = line.xs.map((_, record) => Math.max(...finite(rows.map((row) => row[record]))));
      }
      lines.push(line);
      if (!runs.includes(run)) return; // what lies beside a run has the same levels
      if (found.random !== null) levels.push({ value: found.random, title: "random actions", dash: "6 4", run: run.title, line: lines.length - 1 });
      if (found.ceiling !== null) levels.push({ value: found.ceiling, title: found.ceilingLabel, dash: "2 3", run: run.title, line: lines.length - 1 });
    });
    // A level that all runs have is drawn once; others have the name and the colour of their run.
    const drawn = levels.flatMap((level) => {
      const alike = levels.filter(({ title }) => title === level.title), isCommon = (alike.length === runs.length || runs.length === 1) && alike.every(({ value }) => value === level.value);
      const { run, line, ...rest } = level;
      if (isCommon) return alike[0] === level ? [rest] : [];
      return [{ ...rest, line, title: `${level.title} (${run})` }];
    });
    const across = axis === "updates" ? "policy updates" : "environment steps of one seed's team";
    chart = drawChart(byId("chart"), byId("reading"), { lines, levels: drawn, across, down: byId("metric").selectedOptions[0].text, unit: axis, title: byId("metric").selectedOptions[0].text });
    markMoment();
  }
  function markMoment() {
    if (!chart || !panels.length) return;
    const { update } = momentOf(panels[0]), { updates } = runs[0];
    if (update !== null && updates.length) chart.mark((byId("axis").value === "updates" ? 1 : runs[0].steps.at(-1) / updates.at(-1)) * update);
  }

  let aboutNow = "";
  function buildAbout() {
    const about = JSON.stringify(runs.map((run) => [run.title, run.command, run.facts, run.settings, run.files]));
    if (about === aboutNow) return; // what a reader has opened stays open
    aboutNow = about;
    byId("about").replaceChildren();
    byId("about").parentElement.hidden = runs.every((run) => !run.command); // of trainings that have not begun, nothing is known
    for (const run of runs.filter((run) => run.command)) {
      const part = add(byId("about"), "div");
      if (runs.length > 1) add(part, "h3", {}, run.title);
      add(part, "p", {}, "To repeat it:");
      add(add(part, "pre", { tabindex: 0 }), "code", {}, run.command);
      if (run.facts.length) {
        factTable(part, "Results", run.facts);
        add(part, "p", {}, "Final values are means over the last 1% of the updates; after ± is the 95% confidence interval over the seeds, if there are several.");
      }
      const details = add(part, "details");
      add(details, "summary", {}, "All settings");
      factTable(details, "Settings", run.settings);
      if (!run.files.length) continue;
      const list = add(part, "p", {}, "Files: ");
      run.files.forEach((file, number) => {
        if (number) list.append(", ");
        add(list, "a", { href: file }, file);
      });
    }
  }

  function factTable(parent, label, facts) {
    const scroll = add(parent, "div", { class: "scroll", tabindex: 0, role: "group", "aria-label": label });
    const body = add(add(scroll, "table", { class: "settings" }), "tbody");
    for (const [name, value] of facts) {
      const row = add(body, "tr");
      add(row, "th", { scope: "row" }, name);
      add(row, "td", {}, value);
    }
  }

  // A training in progress, or one that can be resumed: ask for news until it is finished.
  async function poll() {
    const [isWell, news] = await asked(document.body.dataset.live);
    if (isWell && JSON.stringify(news.map((run) => run.version)) !== JSON.stringify(runs.map((run) => run.version))) {
      runs = news;
      build();
    }
    tell(byId("news"), isWell ? "" : news.error);
    if (runs.some((run) => run.isLive || run.isInterrupted)) setTimeout(poll, 1000 * (runs.some((run) => run.isLive) ? POLL_SECONDS : SELDOM_SECONDS));
  }

  byId("play").addEventListener("click", play);
  byId("time").addEventListener("input", () => {
    isPlaying = false;
    progress = +byId("time").value;
    draw();
  });
  for (const id of ["moment", "episode", "agent", "layer", "yaw"]) byId(id).addEventListener("input", draw);
  for (const id of ["metric", "seeds", "axis"]) byId(id).addEventListener("input", drawCurves);
  for (const form of document.forms) form.addEventListener("submit", (event) => event.preventDefault());
  addEventListener("resize", () => {
    draw();
    buildCurves();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", build);
  build();
  if (document.body.dataset.live) poll();
})();
