// The review desk: keys and buttons that judge, save and go on. Nothing is said to be saved before the server said so.
"use strict";
(() => {
  const root = document.querySelector("[data-desk]");
  if (!root) return;
  document.documentElement.classList.add("js");
  const said = document.querySelector("[data-said]");
  const alarm = document.querySelector("[data-alert]");
  const dialog = document.getElementById("keys");
  const keysOn = document.getElementById("keys-on");
  const WAIT = 10_000; // milliseconds
  const DRAFT = "r2med-draft ";
  const DRAFTED = ["note", "sentence", "start", "end", "cause"];
  const ready = new Map();
  const bar = new ResizeObserver(([{ target }]) => {
    const height = getComputedStyle(target).position === "sticky" ? target.offsetHeight : 0;
    document.documentElement.style.setProperty("--bar", `${height}px`);
  });
  let busy = "", queued = null, leaving = false, marking = -1, token = "", seen = 0, since = performance.now(), clean = "", fading = 0;

  const desk = () => root.querySelector(".desk");
  const form = () => root.querySelector("form.decide");
  const field = (name) => form().elements.namedItem(name);
  const tell = (text, stays = false) => {
    said.textContent = text; alarm.textContent = "";
    clearTimeout(fading);
    if (!stays) fading = setTimeout(() => { said.textContent = ""; }, 6000);
  };
  const warn = (text, again) => {
    clearTimeout(fading);
    said.textContent = ""; alarm.textContent = text;
    if (!again) return;
    const button = document.createElement("button");
    button.type = "button"; button.textContent = "Try again";
    button.addEventListener("click", again);
    alarm.append(" ", button);
  };
  const stored = (name) => { try { return localStorage.getItem(name); } catch { return null; } };
  const newToken = () => { token = [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join(""); };

  // How long an item is in view, by a clock that nobody can set.
  const elapsed = () => seen + (document.hidden ? 0 : performance.now() - since);
  document.addEventListener("visibilitychange", () => { seen = document.hidden ? seen + performance.now() - since : seen; since = performance.now(); });

  // What is typed and marked outlives arrow keys, a reload and a look at another page of this tab, until it is saved.
  const draftName = () => DRAFT + desk().dataset.draft;
  const draft = () => JSON.stringify([...new FormData(form())].filter(([name]) => DRAFTED.includes(name)));
  const forget = () => { try { sessionStorage.removeItem(draftName()); } catch { /* was not kept */ } };
  const keep = () => { if (draft() === clean) forget(); else try { sessionStorage.setItem(draftName(), draft()); } catch { /* not kept */ } };
  const restore = () => {
    clean = draft();
    let kept = null;
    try { kept = JSON.parse(sessionStorage.getItem(draftName())); } catch { /* none */ }
    for (const [name, value] of kept || []) if (field(name)) field(name).value = value;
    if (kept && (field("note").value || field("sentence").value)) root.querySelector("details.noted").open = true;
    showProof();
  };
  const drafts = () => { try { return Object.keys(sessionStorage).some((name) => name.startsWith(DRAFT)); } catch { return draft() !== clean; } };
  const leave = (address) => { leaving = true; location.assign(address); };
  addEventListener("beforeunload", (event) => { if (!leaving && drafts()) event.preventDefault(); });
  addEventListener("pageshow", () => { leaving = false; });
  document.addEventListener("click", (event) => { if (event.target.closest("a[href]") && !event.defaultPrevented && !event.ctrlKey && !event.metaKey && !event.shiftKey) leaving = true; });

  const load = async (address) => {
    const answer = await fetch(address + "?part=1", { headers: { accept: "text/html" }, signal: AbortSignal.timeout(WAIT) });
    if (!answer.ok || answer.redirected) throw new Error(String(answer.status));
    return answer.text();
  };
  const prefetch = (address) => {
    if (!address || ready.has(address)) return;
    ready.set(address, load(address).catch(() => null));
  };
  const unreachable = (error) => error.name === "TimeoutError" || error instanceof TypeError;
  const settle = () => {
    newToken(); seen = 0; since = performance.now(); marking = -1;
    root.classList.remove("marking");
    arrange();
  };
  const arrange = () => {
    document.title = desk().dataset.title;
    bar.disconnect();
    bar.observe(root.querySelector(".actions"));
    restore();
    prefetch(desk().dataset.next);
  };
  const show = (text, address, push) => {
    const question = desk().dataset.question;
    // The server escapes every text; the page's policy allows no script in it either.
    root.innerHTML = text;
    if (push) history.pushState({ desk: true }, "", address);
    settle();
    scrollTo(0, 0);
    const passage = root.querySelector(".read");
    // Who has read the question need not pass it again to see its next passage.
    if (question === desk().dataset.question && passage.getBoundingClientRect().top > innerHeight / 2) passage.scrollIntoView();
    root.querySelector("#read-h").focus({ preventScroll: true });
  };
  const go = async (address, push = true, before = "") => {
    if (!/\/(item|rule)\/\d+$/.test(address)) { leave(address); return; }
    const known = await ready.get(address);
    ready.clear();
    try {
      show(known || (await load(address)), address, push);
      tell(before);
    } catch (error) {
      if (!unreachable(error)) { leave(address); return; }
      warn(`${before ? before + ". " : ""}The passage cannot be loaded: the server does not answer.`, () => work("walk", () => go(address, push, before)));
    }
  };

  const send = async (address, values) => {
    let answer;
    try {
      const headers = { accept: "application/json", "content-type": "application/x-www-form-urlencoded" };
      answer = await fetch(address, { method: "POST", headers, body: new URLSearchParams(values), signal: AbortSignal.timeout(WAIT) });
      return { status: answer.status, ...(await answer.json()) };
    } catch (error) {
      if (error.name === "TimeoutError") return { again: true, error: `The server has not answered for ${WAIT / 1000} seconds, so this may not be saved. Try again: it is saved once, however often it is sent.` };
      if (!answer) return { again: true, error: "This was not saved: the server does not answer. Try again when it does." };
      if (answer.status === 403) return { error: "This was not saved: your link does not open this review any more. Ask whoever invited you for a new one." };
      return { again: true, error: `This was not saved: the server answered with ${answer.status}. Try again, or load the page again.` };
    }
  };
  // One thing at a time. A key that comes while something is revealed waits, since its passage is in view; a decision on
  // a passage that is not in view yet is not taken, and that is said.
  const work = async (kind, act) => {
    if (busy) {
      if (busy === "reveal" || kind === "history" || (busy === "walk" && kind === "walk")) queued = () => work(kind, act);
      else if (kind === "decide") tell(busy === "decide" ? "Saving … (the last key was not taken)" : "The last key was not taken: the passage was not in view yet", true);
      return;
    }
    busy = kind;
    desk().setAttribute("aria-busy", "true");
    try { await act(); } finally { busy = ""; desk()?.removeAttribute("aria-busy"); }
    const next = queued;
    queued = null;
    if (next) await next();
  };
  const decide = (say, sent) => work("decide", async () => {
    if (desk().hasAttribute("data-ruling") && !new FormData(form()).get("cause")) { warn("Name the cause of the disagreement first."); form().querySelector("input[name=cause]").focus(); return; }
    const values = sent || { ...Object.fromEntries(new FormData(form())), say, token, seconds: (elapsed() / 1000).toFixed(2) };
    tell("Saving …", true);
    const done = await send(desk().dataset.here, values);
    if (done.error) {
      if (done.status === 409) { ready.clear(); await go(desk().dataset.here, false); }
      warn(done.error, done.again && (() => decide(say, values)));
      return;
    }
    forget();
    await go(done.next, true, done.said);
    for (const name of ["done", "left"]) {
      const count = root.querySelector(`[data-${name}]`);
      if (count && done[name] !== undefined) count.textContent = done[name].toLocaleString("en");
    }
  });
  const undo = () => work("undo", async () => {
    tell("Taking back …", true);
    const done = await send(desk().dataset.undo, { token });
    if (done.error) { warn(done.error, done.again && undo); return; }
    newToken();
    ready.clear();
    if (done.said === "Taken back" || /\/(item|rule)\/\d+$/.test(done.next)) await go(done.next, true, done.said);
    else tell(done.said);
  });
  const reveal = (what) => work("reveal", async () => {
    if (!root.querySelector(`[data-reveal="${what}"]`)) return;
    const here = desk().dataset.here;
    tell("Loading …", true);
    const done = await send(here + "/reveal", { what });
    let text = null;
    try { if (!done.error) text = await load(here); } catch { done.error = "The answer of the server does not come. Try again."; done.again = true; }
    if (done.error) { queued = null; warn(done.error, done.again && (() => reveal(what))); return; }
    keep();
    const opened = ["details.noted", "details.guide"].filter((name) => root.querySelector(name).open);
    root.innerHTML = text;
    ready.clear();
    arrange();
    for (const name of opened) root.querySelector(name).open = true;
    tell(done.said);
    root.querySelector("details.shown:last-of-type summary")?.focus();
  });

  // The stretch that proves a decision: what is selected, or a sentence.
  const sentences = () => [...root.querySelectorAll(".passage .s")];
  const points = (text) => [...text].length;
  const offset = (node, inner) => {
    const sentence = (node.nodeType === 1 ? node : node.parentElement).closest(".s");
    if (!sentence) return null;
    const range = document.createRange();
    range.setStart(sentence, 0);
    range.setEnd(node, inner);
    return Number(sentence.dataset.a) + points(range.toString());
  };
  const showProof = () => {
    if (!field("start")) return;
    const [start, end] = [field("start").value, field("end").value];
    for (const each of sentences()) each.classList.toggle("proof", start !== "" && Number(each.dataset.a) < Number(end) && Number(each.dataset.b) > Number(start));
  };
  const setProof = (start, end, text) => {
    field("start").value = start; field("end").value = end;
    showProof();
    keep();
    tell(start === "" ? "No stretch is marked" : `Marked: ${text.trim().slice(0, 80)}`);
  };
  const stopMarking = () => {
    marking = -1;
    root.classList.remove("marking");
    sentences().forEach((each) => each.classList.remove("at"));
    root.querySelector("[data-act=mark]")?.setAttribute("aria-pressed", "false");
  };
  const point = (place) => {
    const all = sentences();
    marking = Math.min(Math.max(place, 0), all.length - 1);
    all.forEach((each, number) => each.classList.toggle("at", number === marking));
    all[marking].scrollIntoView({ block: "nearest" });
    const how = matchMedia("(pointer: coarse)").matches ? "Tap the sentence that proves your decision; Mark ends this." : `Sentence ${marking + 1} of ${all.length}: ${all[marking].textContent.trim().slice(0, 120)} (arrows choose, Enter marks)`;
    tell(how, true);
  };
  const markSentence = (sentence) => {
    const same = field("start").value === sentence.dataset.a && field("end").value === sentence.dataset.b;
    if (same) setProof("", "", ""); else setProof(Number(sentence.dataset.a), Number(sentence.dataset.b), sentence.textContent);
    stopMarking();
  };
  const mark = () => {
    if (!field("start") || !sentences().length) return;
    const selection = getSelection();
    const passage = root.querySelector(".passage");
    if (!selection.isCollapsed && passage.contains(selection.anchorNode) && passage.contains(selection.focusNode)) {
      const range = selection.getRangeAt(0);
      const [start, end] = [offset(range.startContainer, range.startOffset), offset(range.endContainer, range.endOffset)];
      if (start !== null && end !== null && start < end) { setProof(start, end, selection.toString()); selection.removeAllRanges(); return; }
    }
    if (marking >= 0) { stopMarking(); tell(""); return; }
    root.classList.add("marking");
    root.querySelector("[data-act=mark]")?.setAttribute("aria-pressed", "true");
    point(Math.max(0, sentences().findIndex((each) => each.querySelector("mark"))));
  };

  const note = () => {
    const details = root.querySelector("details.noted");
    details.open = true;
    field("note").focus();
  };
  const walk = (name) => work("walk", async () => { const address = desk().dataset[name]; if (address) { keep(); tell(""); await go(address); } });
  const toggleGuide = () => { const guide = root.querySelector(".guide"); guide.open = !guide.open; if (guide.open) guide.querySelector("summary").focus(); };
  root.addEventListener("toggle", (event) => { if (event.target.matches(".guide") && event.target.open) event.target.scrollIntoView({ block: "nearest" }); }, true);
  root.addEventListener("input", keep);
  const acts = { note, mark, undo, before: () => walk("before"), after: () => walk("after"), help: () => dialog.showModal() };
  const causes = { q: "question", d: "guideline", k: "knowledge", l: "slip" };
  const keys = { u: () => decide("unsure"), s: () => decide("skip"), n: note, h: mark, z: undo, a: () => reveal("answer"), r: () => reveal("reasoning"), g: toggleGuide, ArrowLeft: acts.before, ArrowRight: acts.after, "?": acts.help };

  // What a key is called: by what it writes, or by its place where it writes no Latin letter or digit.
  const keyName = (event) => {
    if (/^[a-z]$/i.test(event.key)) return event.shiftKey ? event.key : event.key.toLowerCase();
    const place = !event.shiftKey && !/^\d$/.test(event.key) && /^Digit(\d)$|^Key([A-Z])$/.exec(event.code);
    return place ? place[1] ?? place[2].toLowerCase() : event.key;
  };

  root.addEventListener("click", (event) => {
    const button = event.target.closest("[data-say], [data-act], [data-reveal]");
    if (button) {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      if (button.dataset.say !== undefined) decide(button.dataset.say);
      else if (button.dataset.reveal) reveal(button.dataset.reveal);
      else acts[button.dataset.act]();
      return;
    }
    const sentence = event.target.closest(".s");
    if (sentence && marking >= 0) markSentence(sentence);
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || dialog.open) return;
    const typing = event.target.closest("textarea, select, input:not([type=radio]):not([type=checkbox])");
    if (event.key === "Escape") { if (typing) event.target.blur(); if (marking >= 0) stopMarking(); return; }
    if (typing) return;
    if (marking >= 0) {
      const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
      if (step) { event.preventDefault(); point(marking + step); return; }
      if (event.key === "Enter") { event.preventDefault(); markSentence(sentences()[marking]); return; }
    }
    if (!keysOn.checked || event.repeat || event.isComposing) return;
    if (event.target.matches("input[type=radio]") && event.key.startsWith("Arrow")) return;
    const key = keyName(event);
    const ruling = desk().hasAttribute("data-ruling");
    const digit = /^\d$/.test(key) && root.querySelector(`[data-say="${key}"]`);
    if (digit) { event.preventDefault(); decide(key); }
    else if (ruling && causes[key]) {
      event.preventDefault();
      const cause = root.querySelector(`input[name=cause][value=${causes[key]}]`);
      cause.checked = true;
      keep();
      tell(cause.parentElement.textContent.trim().replace(/\s+\w$/, ""));
    } else if (keys[key] && !(ruling && "ush".includes(key))) { event.preventDefault(); keys[key](); }
  });
  addEventListener("popstate", () => work("history", () => { tell(""); return go(location.pathname, false); }));
  keysOn.checked = stored("r2med-keys") !== "off";
  keysOn.addEventListener("change", () => { try { localStorage.setItem("r2med-keys", keysOn.checked ? "on" : "off"); } catch { /* not kept */ } });
  settle();
  root.querySelector("#read-h").focus({ preventScroll: true });
})();
