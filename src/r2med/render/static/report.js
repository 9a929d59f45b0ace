
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
  const stem = (word) => word.toLowerCase().replace(/(ings?|edly|ies|ied|es|ed|ly|s)$/, "");
  const COMMON = new Set("the and for with that this from are was were has have had not but what which who why how can could would should does did into than then there their they them his her its you your our about after before between when while will may might one two also been being more most such other some any all over under out off very just only".split(" "));
  const terms = (text) => new Set((text.match(/[\p{L}\p{N}]{3,}/gu) ?? []).filter((word) => !COMMON.has(word.toLowerCase())).map(stem));
  const marked = (target, text, wanted) => {
    for (const piece of text.split(/([\p{L}\p{N}]{3,})/u)) {
      if (piece && wanted.has(stem(piece)) && !COMMON.has(piece.toLowerCase())) target.append(make("mark", piece, "query"));
      else if (piece) target.append(piece);
    }
    return target;
  };
  const percent = (value) => (100 * value).toFixed(2);
  const pick = () => Object.fromEntries(new FormData(form));
  let page = 0, turn = 0;

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
  const list = (task, run, other, index, wanted) => {
    const made = make("ol", undefined, "docs");
    const relevant = new Set(task.queries[index].relevant);
    const [numbers, scores] = run.lists[index];
    const places = other ? new Map(other.lists[index][0].map((each, place) => [each, place + 1])) : null;
    numbers.forEach((number, place) => {
      const row = make("li", undefined, relevant.has(number) ? "relevant" : "");
      const head = make("div", undefined, "head");
      head.append(make("b", String(place + 1)), make("span", task.ids[number], "mono"), make("span", String(scores[place])));
      if (relevant.has(number)) head.append(make("span", "relevant", "tag good"));
      if (places) head.append(make("span", places.has(number) ? `other list: ${places.get(number)}` : "not in the other list", "soft"));
      const text = task.texts[number];
      row.append(head, unfolding(text, wanted));
      made.append(row);
    });
    if (!numbers.length) made.append(make("li", "Nothing was found."));
    return made;
  };
  const side = (name, task, run, other, index, wanted) => {
    const made = make("section");
    const head = make("h3");
    head.append(make("code", name), ` ${percent(run.values[index])}`);
    made.append(head);
    if (run.causes[index]) made.append(make("p", `cause: ${run.causes[index]}`, "note"));
    for (const each of run.written[index] ?? []) {
      const trace = make("details");
      trace.append(make("summary", `Written by ${each.method}${each.model ? ` (${each.model})` : ""}${each.incomplete ? `, incomplete: ${each.incomplete}` : ""}`));
      trace.append(marked(make("div", undefined, "text"), each.text, wanted));
      if (each.reasoning) trace.append(make("h3", "Reasoning"), make("div", each.reasoning, "text soft"));
      made.append(trace);
    }
    const missing = task.queries[index].relevant.filter((each) => !run.lists[index][0].includes(each));
    if (missing.length) {
      const missed = make("details", undefined, "missed");
      missed.append(make("summary", `Relevant, but not among the first 10: ${missing.map((each) => task.ids[each]).join(", ")}`));
      for (const each of missing) missed.append(make("h3", task.ids[each], "mono"), unfolding(task.texts[each], wanted));
      made.append(missed);
    }
    made.append(list(task, run, other, index, wanted));
    return made;
  };
  const open = (target, names, task, run, other, index) => {
    const query = task.queries[index];
    const wanted = terms(query.text);
    target.append(make("p", query.text, "question"));
    if (query.answer) {
      const answer = make("details");
      answer.append(make("summary", "Gold answer"), make("div", query.answer, "text"));
      target.append(answer);
    }
    const lists = make("div", undefined, "lists");
    lists.append(side(names[0], task, run, other, index, wanted));
    if (other) lists.append(side(names[1], task, other, run, index, wanted));
    target.append(lists);
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
    page = Math.min(page, pages - 1);
    document.getElementById("browse-count").textContent = `${rows.length} of ${task.queries.length} queries.`;
    const name = (field) => form.elements[field].selectedOptions[0].textContent;
    target.replaceChildren(...rows.slice(page * SIZE, (page + 1) * SIZE).map((index) => {
      const made = make("details", undefined, "query");
      const head = make("summary");
      head.append(make("strong", percent(run.values[index])), other ? ` | ${percent(other.values[index])} ` : " ", make("span", task.queries[index].id, "mono"), " ", make("span", task.queries[index].text.slice(0, 150), "soft"));
      if (run.causes[index] && !/^(found|(\d+) of \2 found)$/.test(run.causes[index])) head.append(" ", make("span", run.causes[index], "tag kind"));
      made.append(head);
      made.addEventListener("toggle", () => { if (made.open && made.children.length === 1) open(made, [name("system"), name("beside")], task, run, other, index); });
      return made;
    }));
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
    if (page) now.set("q-page", page + 1);
    try { history.replaceState(null, "", "#" + now); } catch { /* a page from a file may have no say */ }
  };
  const restore = () => {
    const now = new URLSearchParams(location.hash.slice(1));
    const asked = fields().filter((field) => now.has(`q-${field.name}`));
    for (const field of asked) field.value = now.get(`q-${field.name}`);
    page = Math.max(0, (Number(now.get("q-page")) || 1) - 1);
    if (!asked.length && !page) return;
    show();
    document.getElementById("browse").scrollIntoView();
  };
  const again = () => { page = 0; keep(); show(); };
  form.addEventListener("input", again);
  form.addEventListener("submit", (event) => { event.preventDefault(); again(); });
  const jump = () => {
    const found = /^#system-(\d+)$/.exec(location.hash);
    if (!found) return;
    form.elements.system.value = found[1];
    page = 0;
    show();
    document.getElementById("browse").scrollIntoView();
  };
  addEventListener("hashchange", jump);
  // A document that is printed shows what is open; nothing is unpacked before somebody looks near it.
  new IntersectionObserver((seen, watch) => { if (seen.some((each) => each.isIntersecting)) { watch.disconnect(); show(); } }, { rootMargin: "400px" }).observe(document.getElementById("browse"));
  restore();
  jump();
})();
