// Two systems of a static board side by side. The address keeps which; every text is put in place as text.
"use strict";
(() => {
  const form = document.getElementById("pair");
  const { measure, tasks, labels, lines, pairs, report } = JSON.parse(document.getElementById("systems").textContent);
  const outcome = document.getElementById("outcome");
  const problem = document.querySelector("[data-problem]");
  const make = (name, text, css) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (css) made.className = css;
    return made;
  };
  const percent = (value) => (value === null ? "–" : (100 * value).toFixed(2));
  const signed = (value) => {
    const text = Math.abs(100 * value).toFixed(2);
    return Number(text) === 0 ? "0.00" : (value > 0 ? "+" : "−") + text;
  };
  const flipped = ([mean, low, high, p, wins, losses, queries]) => [-mean, -high, -low, p, losses, wins, queries];
  const tested = (a, b) => {
    const found = pairs.find((each) => (each.a === a && each.b === b) || (each.a === b && each.b === a));
    if (!found || found.a === a) return found;
    const rows = Object.fromEntries(Object.entries(found.rows).map(([task, row]) => [task, flipped(row)]));
    return { ...found, rows, all: flipped(found.all) };
  };
  // The known name that shares most pairs of letters with another.
  const letters = (text) => new Set([...text.toLowerCase()].map((letter, place, all) => letter + (all[place + 1] ?? "")));
  const nearest = (name) => {
    const wanted = letters(name);
    const like = (label) => { const own = letters(label); return [...own].filter((each) => wanted.has(each)).length / (own.size + wanted.size); };
    return labels.reduce((best, label) => (like(label) > like(best) ? label : best), labels[0]);
  };
  const known = (name) => (labels.includes(name) ? name : labels[lines.findIndex((line) => line.name === name)]);
  const stateOf = () => {
    const now = new URLSearchParams();
    for (const name of ["a", "b", "order"]) if (form.elements[name].value) now.set(name, form.elements[name].value);
    return now;
  };
  const keep = () => {
    try { history.replaceState(null, "", "#" + stateOf()); } catch { /* a page from a file may have no say */ }
    for (const each of document.querySelectorAll("[data-board]")) each.hash = String(stateOf());
  };
  const restore = () => {
    const asked = new URLSearchParams(location.hash.slice(1));
    problem.replaceChildren();
    for (const name of ["a", "b"]) {
      const wanted = asked.get(name);
      if (!wanted) continue;
      const found = known(wanted);
      form.elements[name].value = found ?? nearest(wanted);
      if (!found) problem.append(make("span", `No system “${wanted}” is on this board; ${name.toUpperCase()} is the nearest, “${nearest(wanted)}”. `));
    }
    const order = asked.get("order") ?? "";
    if ([...form.elements.order.options].some((each) => each.value === order)) form.elements.order.value = order;
    problem.hidden = !problem.childNodes.length;
  };
  const NS = "http://www.w3.org/2000/svg";
  const bar = (value, low, high, most) => {
    const drawing = document.createElementNS(NS, "svg");
    drawing.setAttribute("class", "delta");
    drawing.setAttribute("viewBox", "0 0 120 12");
    drawing.setAttribute("aria-hidden", "true");
    const at = (number) => 60 + (58 * number) / most;
    const part = (name, facts) => {
      const made = document.createElementNS(NS, name);
      for (const [key, each] of Object.entries(facts)) made.setAttribute(key, each);
      drawing.append(made);
    };
    if (value !== null) part("rect", { x: Math.min(60, at(value)), y: 2, width: Math.max(0.6, Math.abs(at(value) - 60)), height: 8, class: value < 0 ? "lost" : "gained" });
    part("line", { x1: 60, x2: 60, y1: 0, y2: 12, class: "zero" });
    if (low !== undefined) part("line", { x1: at(low), x2: at(high), y1: 6, y2: 6, class: "range" });
    return drawing;
  };
  const heading = (letter, line, label) => {
    const made = make("span", `${letter} `);
    const link = make("a");
    link.href = line.href;
    link.append(make("code", label));
    made.append(link);
    if (line.oracle) made.append(" ", make("span", "oracle", "tag warn"));
    else if (!line.own) made.append(" ", make("span", line.sources.join(", "), "tag"));
    return made;
  };
  const fact = (list, name, ...content) => { const cell = make("dd"); cell.append(...content); list.append(make("dt", name), cell); };
  const verdictCard = (a, b, one, other, test, gain) => {
    const card = make("section", undefined, "card");
    card.id = "verdict";
    const title = make("h2");
    title.append(heading("B", other, b), " minus ", heading("A", one, a));
    const facts = make("dl", undefined, "facts");
    const figure = make("strong", gain === null ? "not known" : signed(gain), !test?.differs ? "" : gain > 0 ? "good" : "bad");
    const interval = test ? `, 95% interval ${signed(test.all[1])} to ${signed(test.all[2])}` : "";
    fact(facts, "Difference", figure, gain === null ? ": one of the two lacks a task" : ` ${measure} × 100, the mean over tasks${interval}`);
    const untested = one.own && other.own ? "This pair was not tested when the page was made." : "Published figures come without their queries: nobody can test whether the difference is more than chance.";
    fact(facts, "Verdict", test ? test.verdict : untested);
    if (test) fact(facts, "Queries", `B won ${test.all[4]}, A won ${test.all[5]}, ${test.all[6] - test.all[4] - test.all[5]} even`);
    if (report && one.place !== null && other.place !== null) {
      const link = make("a", "Every query in both");
      link.href = `${report}#q-system=${one.place}&q-beside=${other.place}`;
      fact(facts, "Look closer", link);
    }
    card.append(title, facts);
    return card;
  };
  const tableCard = (one, other, test) => {
    const card = make("section", undefined, "card");
    card.id = "tasks";
    const scroll = make("div", undefined, "scroll");
    scroll.tabIndex = 0;
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", "Figures by task");
    const table = make("table");
    const heads = ["Task", "A", "B", "B − A", "", ...(test ? ["95% interval", "p after Holm", "B won", "A won"] : [])];
    const top = table.createTHead().insertRow();
    heads.forEach((text, place) => {
      const head = make("th", text, place ? "n" : "");
      head.scope = "col";
      if (!text) head.append(make("span", "Drawn", "unseen"));
      top.append(head);
    });
    const body = table.createTBody();
    const rows = tasks.map((task, place) => ({ task, x: one.values[place], y: other.values[place], row: test?.rows[task] }));
    for (const each of rows) each.gain = each.x === null || each.y === null ? null : each.y - each.x;
    const order = form.elements.order.value;
    const down = { gained: 1, lost: -1 }[order];
    if (down) rows.sort((p, q) => (p.gain === null) - (q.gain === null) || down * (q.gain - p.gain));
    const gain = one.average === null || other.average === null ? null : other.average - one.average;
    if (tasks.length > 1) rows.push({ task: "average", x: one.average, y: other.average, gain, row: test?.all });
    const most = Math.max(0.001, ...rows.flatMap(({ gain, row }) => [Math.abs(gain ?? 0), ...(row ? [Math.abs(row[1]), Math.abs(row[2])] : [])]));
    for (const { task, x, y, gain, row } of rows) {
      const line = body.insertRow();
      const head = make("th", task);
      head.scope = "row";
      const drawn = make("td");
      drawn.append(bar(gain, row?.[1], row?.[2], most));
      line.append(head, make("td", percent(x), "n"), make("td", percent(y), "n"), make("td", gain === null ? "–" : signed(gain), "n"), drawn);
      if (test) line.append(...(row ? [`${signed(row[1])} to ${signed(row[2])}`, row[3], row[4], row[5]] : ["–", "–", "–", "–"]).map((text) => make("td", String(text), "n")));
    }
    scroll.append(table);
    card.append(make("h2", "By task"), scroll);
    return card;
  };
  const show = () => {
    const [a, b] = [form.elements.a.value, form.elements.b.value];
    const [one, other] = [a, b].map((label) => lines[labels.indexOf(label)]);
    document.title = `${b} against ${a}, ${measure} · r2med`;
    if (a === b) { outcome.replaceChildren(make("p", "Choose two different systems.", "card")); return; }
    const test = tested(a, b);
    const gain = one.average === null || other.average === null ? null : other.average - one.average;
    outcome.replaceChildren(verdictCard(a, b, one, other, test, test ? test.all[0] : gain), tableCard(one, other, test));
  };
  form.addEventListener("change", () => { problem.hidden = true; keep(); show(); });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.querySelector("[data-swap]").addEventListener("click", () => {
    const { a, b } = form.elements;
    [a.value, b.value] = [b.value, a.value];
    problem.hidden = true;
    keep();
    show();
  });
  addEventListener("hashchange", () => { restore(); keep(); show(); });
  restore();
  keep();
  show();
})();
