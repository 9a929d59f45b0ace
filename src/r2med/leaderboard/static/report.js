
// The browser of queries in a report: blocks are unpacked when they are first looked at.
(() => {
  const form = document.getElementById("browser");
  if (!form) return;
  const SIZE = 50;
  const kept = new Map();
  const unpack = (name) => {
    if (!kept.has(name)) kept.set(name, (async () => {
      const bytes = Uint8Array.from(atob(document.getElementById(name).textContent), (each) => each.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
      return JSON.parse(await new Response(stream).text());
    })());
    return kept.get(name);
  };
  const make = (name, text, css) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (css) made.className = css;
    return made;
  };
  // Which words are one is told by the file, so that marks are those of every other output.
  const WORD = /[\p{L}\p{N}\p{M}_]+(?:(?:(?<=\p{L})['’.·:](?=\p{L})|(?<=\p{N})[.,'](?=\p{N}))[\p{L}\p{N}\p{M}_]+)*/gu;
  const stems = (task) => {
    task.stems ??= new Map([...task.alike.flatMap((words, place) => words.split(" ").map((word) => [word, place])), ...task.unmarked.map((word) => [word, null])]);
    return task.stems;
  };
  const marker = (task, texts) => {
    const known = stems(task), kinds = new Map();
    const stem = (word) => { const small = word.toLowerCase(); return known.has(small) ? known.get(small) : small; };
    for (const [kind, several] of texts) for (const text of several) for (const [word] of text.matchAll(WORD)) {
      const found = stem(word);
      if (found !== null && !kinds.has(found)) kinds.set(found, kind);
    }
    return (word) => kinds.get(stem(word));
  };
  const writing = (sides, index) => sides.flatMap(({ run }) => (run.written[index] ?? []).filter((each) => !each.incomplete).map((each) => each.text));
  const kindsOf = (task, sides, index) => marker(task, [["query", [task.queries[index].text]], ["generated", writing(sides, index)], ["answer", [task.queries[index].answer]]]);
  const marked = (target, text, wanted) => {
    let done = 0;
    for (const found of text.matchAll(WORD)) {
      const kind = wanted(found[0]);
      if (!kind) continue;
      target.append(text.slice(done, found.index), make("mark", found[0], kind));
      done = found.index + found[0].length;
    }
    target.append(text.slice(done));
    return target;
  };
  const percent = (value) => (100 * value).toFixed(2);
  const pick = () => Object.fromEntries(new FormData(form));
  let page = null, turn = 0;

  // A long text shows its start, cut between words, until it is opened.
  const unfolding = (text, wanted) => {
    if (text.length <= 320) { const whole = marked(make("div", undefined, "body text"), text, wanted); whole.dir = "auto"; return whole; }
    const more = make("details", undefined, "body");
    const summary = make("summary");
    const start = marked(make("span", undefined, "start"), text.slice(0, 320).replace(/\s+\S{0,40}$/, "") + " …", wanted);
    start.dir = "auto";
    summary.append(start, make("span", "Close the text", "less"));
    more.append(summary);
    more.addEventListener("toggle", () => {
      if (more.children.length > 1) return;
      const whole = marked(make("div", undefined, "text"), text, wanted);
      whole.dir = "auto";
      more.append(whole);
    });
    return more;
  };
  const svg = (name, facts, ...inner) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(facts)) made.setAttribute(key, value);
    made.append(...inner);
    return made;
  };
  const bars = (a, b) => {
    const bar = (value, y, css) => (value === null ? [] : [svg("rect", { x: 0.5, y, width: Math.max(1, 99 * value), height: 4, class: css })]);
    const told = `A ${percent(a)}, B ${b === null ? "none" : percent(b)}`;
    return svg("svg", { class: "ab", viewBox: "0 0 100 11", preserveAspectRatio: "none", role: "img", "aria-label": told }, ...bar(a, 0.5, "a"), ...bar(b, 6.5, "b"));
  };
  const chip = (letter, cause) => make("span", `${letter} ${cause}`, /^(found|(\d+) of \2 found)$/.test(cause) ? "chip fine" : "chip");

  const list = (letter, name, number, task, run, other, index, wanted) => {
    const made = make("section", undefined, "onelist");
    made.dataset.number = number;
    made.setAttribute("aria-label", `List ${letter}`);
    const head = make("h3", `${letter} `);
    head.append(make("code", name));
    const documents = make("ol", undefined, "docs");
    const relevant = new Set(task.queries[index].relevant);
    const [numbers, scores] = run.lists[index];
    const places = other ? new Map(other.lists[index][0].map((each, place) => [each, place + 1])) : null;
    numbers.forEach((each, place) => {
      const row = make("li", undefined, relevant.has(each) ? "relevant" : "");
      row.dataset.doc = task.ids[each];
      const line = make("div", undefined, "head");
      line.append(make("b", String(place + 1)), make("span", task.ids[each], "mono"), make("span", String(scores[place])));
      if (relevant.has(each)) line.append(make("span", "relevant", "tag good"));
      const moved = places?.has(each) ? places.get(each) - place - 1 : null;
      if (places && moved === null) line.append(make("span", "new", "tag kind"));
      else if (places) line.append(make("span", moved > 0 ? `▲ ${moved}` : moved < 0 ? `▼ ${-moved}` : "same place", moved > 0 ? "good" : moved < 0 ? "bad" : "soft"));
      row.append(line, unfolding(task.texts[each], wanted));
      documents.append(row);
    });
    if (!numbers.length) documents.append(make("li", "Nothing was found."));
    made.append(head, documents);
    return made;
  };
  const part = (name, title) => {
    const made = make("section", undefined, `part ${name}-part`);
    if (title) made.append(make("h3", title));
    return made;
  };
  const question = (task, sides, index) => {
    const made = part("question");
    const query = task.queries[index];
    const text = make("p", query.text, "question");
    text.dir = "auto";
    const table = make("table", undefined, "sides");
    made.append(make("h3", `${form.elements.task.selectedOptions[0].textContent} · ${query.id}`), table, text);
    if (query.answer) {
      const answer = make("details");
      answer.id = "gold";
      answer.open = gold;
      answer.addEventListener("toggle", () => { if (gold !== answer.open) { gold = answer.open; keep(); } });
      answer.append(make("summary", "Gold answer"), marked(make("div", undefined, "text"), query.answer, kindsOf(task, sides, index)));
      made.append(answer);
    }
    for (const { letter, name, run } of sides) {
      const row = table.insertRow();
      const head = make("th", letter);
      head.scope = "row";
      const cell = make("td");
      cell.append(make("code", name));
      if (run.causes[index]) cell.append(make("div", run.causes[index], "soft"));
      row.append(head, cell, make("td", percent(run.values[index]), "n"));
    }
    return made;
  };
  const relevantCard = (task, sides, index, wanted) => {
    const made = part("relevant", "Relevant documents");
    const documents = make("ol", undefined, "docs");
    const best = (place) => Math.min(...sides.map(({ run }) => run.places[index][place][0] || Infinity));
    const order = task.queries[index].relevant.map((_, place) => place).sort((a, b) => best(a) - best(b) || a - b);
    for (const place of order) {
      const number = task.queries[index].relevant[place];
      const row = make("li", undefined, "relevant");
      row.dataset.doc = task.ids[number];
      const line = make("div", undefined, "head");
      line.append(make("span", task.ids[number], "mono"));
      for (const { letter, run } of sides) {
        const [rank, cause] = run.places[index][place];
        const at = make("span", `${letter} `, "at");
        at.append(make("b", rank ? String(rank) : "not found", rank ? "" : "bad"));
        if (cause && cause !== "found") at.append(" ", make("span", cause, "soft"));
        line.append(at);
      }
      row.append(line, unfolding(task.texts[number], wanted));
      documents.append(row);
    }
    made.append(documents);
    return made;
  };
  const writtenCard = (sides, index, wanted) => {
    const made = part("written", "Written for this query");
    for (const { letter, name, run } of sides) for (const each of run.written[index] ?? []) {
      const trace = make("details", undefined, "made");
      trace.append(make("summary", `${letter} ${name}: written by ${each.method}${each.model ? ` (${each.model})` : ""}${each.incomplete ? `, incomplete: ${each.incomplete}` : ""}`));
      trace.append(marked(make("div", undefined, "text"), each.text, wanted));
      if (each.reasoning) trace.append(make("h3", "Reasoning"), make("div", each.reasoning, "text soft"));
      made.append(trace);
    }
    return made.querySelector("details") ? made : null;
  };
  const bench = document.getElementById("bench");
  const lists = document.getElementById("lists");
  const tabs = [...bench.querySelectorAll(".tabs a")];
  let current = "", gold = false, around = [null, null], refresh = null;
  const showTab = (name) => {
    bench.dataset.tab = name;
    for (const each of tabs) if (each.dataset.tab === name) each.setAttribute("aria-current", "true"); else each.removeAttribute("aria-current");
  };
  for (const each of tabs) each.addEventListener("click", (event) => { event.preventDefault(); showTab(each.dataset.tab); keep(); });
  const open = (task, sides, index) => {
    const wanted = kindsOf(task, sides, index);
    const written = writtenCard(sides, index, marker(task, [["query", [task.queries[index].text]], ["answer", [task.queries[index].answer]]]));
    tabs.find((each) => each.dataset.tab === "written").hidden = !written;
    tabs.find((each) => each.dataset.tab === "2").hidden = sides.length < 2;
    if (!written && bench.dataset.tab === "written") showTab("");
    document.getElementById("query").replaceChildren(question(task, sides, index), relevantCard(task, sides, index, wanted), ...(written ? [written] : []));
    lists.replaceChildren(...sides.map(({ letter, name, run }, place) => list(letter, name, place + 1, task, run, place ? sides[0].run : null, index, kindsOf(task, [sides[place]], index))));
    if (refresh) refresh(); else refresh = window.joinLists(lists, bench);
  };
  const show = async () => {
    const mine = ++turn;
    const asked = pick();
    const target = document.getElementById("queries");
    const task = await unpack(`task-${asked.task}`);
    const run = await unpack(`run-${asked.system}-${asked.task}`);
    const other = asked.beside === "" ? null : await unpack(`run-${asked.beside}-${asked.task}`);
    if (mine !== turn) return;
    const words = asked.text.toLowerCase().split(/\s+/).filter(Boolean);
    let rows = task.queries.map((_, index) => index).filter((index) => {
      const text = `${task.queries[index].id} ${task.queries[index].text}`.toLowerCase();
      return words.every((word) => text.includes(word)) && (!asked.cause || run.causes[index].includes(asked.cause));
    });
    const gain = (index) => (other ? other.values[index] - run.values[index] : 0);
    const keys = { lowest: (i) => run.values[i], highest: (i) => -run.values[i], gain: (i) => -gain(i), given: (i) => i };
    rows.sort((a, b) => keys[asked.order](a) - keys[asked.order](b) || a - b);
    const pages = Math.max(1, Math.ceil(rows.length / SIZE));
    document.getElementById("browse-count").textContent = `${rows.length} of ${task.queries.length} queries.`;
    const name = (field) => form.elements[field].selectedOptions[0].textContent;
    const sides = [{ letter: "A", name: name("system"), run }, ...(other ? [{ letter: "B", name: name("beside"), run: other }] : [])];
    // The query that was looked at stays as long as it is one of those that are asked for.
    const known = task.queries.findIndex((each) => each.id === current);
    const index = rows.includes(known) ? known : rows[Math.min(page ?? 0, pages - 1) * SIZE];
    const at = rows.indexOf(index);
    page = Math.min(page ?? Math.max(0, Math.floor(at / SIZE)), pages - 1);
    around = [rows[at - 1], rows[at + 1]].map((each) => (each === undefined ? null : task.queries[each].id));
    target.replaceChildren(...rows.slice(page * SIZE, (page + 1) * SIZE).map((each) => {
      const made = make("li", undefined, each === index ? "here" : "");
      const link = make("a");
      link.href = "#browse";
      if (each === index) link.setAttribute("aria-current", "true");
      link.append(make("span", task.queries[each].id, "id mono"), bars(run.values[each], other ? other.values[each] : null), make("span", `${percent(run.values[each])}${other ? ` ${percent(other.values[each])}` : ""}`, "figures"));
      const start = make("span", task.queries[each].text.slice(0, 90), "start");
      start.dir = "auto";
      link.append(start);
      link.addEventListener("click", (event) => { event.preventDefault(); if (bench.dataset.tab === "queries") showTab(""); visit(task.queries[each].id); });
      made.append(link);
      const chips = sides.filter((side) => side.run.causes[each]).map((side) => chip(side.letter, side.run.causes[each]));
      if (chips.length) { const row = make("div", undefined, "chips"); row.append(...chips); made.append(row); }
      return made;
    }));
    if (!rows.length) target.append(make("li", "No query is like that.", "none"));
    bench.hidden = false;
    const here = target.querySelector(".here");
    if (here && target.scrollHeight > target.clientHeight) target.scrollTop = here.offsetTop - target.clientHeight / 3;
    if (index !== undefined) open(task, sides, index);
    const nav = document.getElementById("query-pages");
    nav.replaceChildren();
    const link = (text, to) => { const made = make("button", text); made.type = "button"; made.addEventListener("click", () => { page = to; keep(); show(); document.getElementById("browse").scrollIntoView(); }); return made; };
    if (page > 0) nav.append(link("‹ Previous", page - 1));
    if (pages > 1) nav.append(make("span", `Page ${page + 1} of ${pages}`, "here"));
    if (page < pages - 1) nav.append(link("Next ›", page + 1));
  };
  // What is chosen stands behind the # of the address, beside what the board keeps there.
  const fields = () => [...form.elements].filter((field) => field.name);
  const first = Object.fromEntries(fields().map((field) => [field.name, field.value]));
  const keep = () => {
    const now = new URLSearchParams(location.hash.slice(1));
    for (const name of [...now.keys()]) if (/^(q-|system-\d)/.test(name)) now.delete(name);
    for (const field of fields()) if (field.value !== first[field.name]) now.set(`q-${field.name}`, field.value);
    for (const [name, value] of Object.entries({ page: page ? page + 1 : "", query: current, tab: bench.dataset.tab, gold: gold ? 1 : "" })) if (value) now.set(`q-${name}`, value);
    try { history.replaceState(null, "", "#" + now); } catch { /* a page from a file may have no say */ }
  };
  const restore = () => {
    const now = new URLSearchParams(location.hash.slice(1));
    const asked = fields().filter((field) => now.has(`q-${field.name}`));
    for (const field of asked) field.value = now.get(`q-${field.name}`);
    page = now.has("q-page") ? Math.max(0, (Number(now.get("q-page")) || 1) - 1) : null;
    current = now.get("q-query") ?? "";
    gold = now.has("q-gold");
    if (tabs.some((each) => each.dataset.tab === now.get("q-tab"))) showTab(now.get("q-tab"));
    if (![...now.keys()].some((name) => name.startsWith("q-"))) return;
    show();
    document.getElementById("browse").scrollIntoView();
  };
  const again = () => { page = null; keep(); show(); };
  const visit = (query) => { current = query; again(); };
  const acts = {
    j: () => { if (around[1]) visit(around[1]); },
    k: () => { if (around[0]) visit(around[0]); },
    g: () => { const answer = document.getElementById("gold"); if (!answer) return; answer.open = !answer.open; if (answer.open) answer.scrollIntoView({ block: "nearest" }); },
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || bench.hidden || !acts[event.key] || event.target.closest("input, select, textarea")) return;
    event.preventDefault();
    acts[event.key]();
  });
  form.addEventListener("input", again);
  form.addEventListener("submit", (event) => { event.preventDefault(); again(); });
  const jump = () => {
    const found = /^#system-(\d+)$/.exec(location.hash);
    if (!found) return;
    form.elements.system.value = found[1];
    page = null;
    show();
    document.getElementById("browse").scrollIntoView();
  };
  addEventListener("hashchange", jump);
  // A document that is printed shows what is open; nothing is unpacked before somebody looks near it.
  new IntersectionObserver((seen, watch) => { if (seen.some((each) => each.isIntersecting)) { watch.disconnect(); show(); } }, { rootMargin: "400px" }).observe(document.getElementById("browse"));
  restore();
  jump();
})();
