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
  const ready = new Map();
  let busy = false, marking = -1, token = "", seen = 0, since = performance.now();

  const desk = () => root.querySelector(".desk");
  const form = () => root.querySelector("form.decide");
  const field = (name) => form().elements.namedItem(name);
  const tell = (text) => { said.textContent = text; alarm.textContent = ""; };
  const warn = (text) => { alarm.textContent = text; said.textContent = ""; };
  const stored = (name) => { try { return localStorage.getItem(name); } catch { return null; } };
  const newToken = () => { token = [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join(""); };

  // How long an item is in view, by a clock that nobody can set.
  const elapsed = () => seen + (document.hidden ? 0 : performance.now() - since);
  document.addEventListener("visibilitychange", () => { seen = document.hidden ? seen + performance.now() - since : seen; since = performance.now(); });

  const load = async (address) => {
    const answer = await fetch(address + "?part=1", { headers: { accept: "text/html" } });
    if (!answer.ok || answer.redirected) throw new Error(String(answer.status));
    return answer.text();
  };
  const prefetch = (address) => {
    if (!address || ready.has(address)) return;
    ready.set(address, load(address).catch(() => null));
  };
  const settle = () => {
    newToken(); seen = 0; since = performance.now(); marking = -1;
    prefetch(desk().dataset.next);
  };
  const show = (text, address, push) => {
    // The server escapes every text; the page's policy allows no script in it either.
    root.innerHTML = text;
    if (push) history.pushState({ desk: true }, "", address);
    settle();
    scrollTo(0, 0);
    root.querySelector("#read-h").focus({ preventScroll: true });
  };
  const go = async (address, push = true) => {
    if (!/\/(item|rule)\/\d+$/.test(address)) { location.assign(address); return; }
    const known = ready.get(address);
    ready.clear();
    try { show((await known) || (await load(address)), address, push); } catch { location.assign(address); }
  };

  const send = async (address, values) => {
    let answer;
    try {
      answer = await fetch(address, { method: "POST", headers: { accept: "application/json", "content-type": "application/x-www-form-urlencoded" }, body: new URLSearchParams(values) });
    } catch { return { error: "This was not saved: the server does not answer. Try again when it does." }; }
    try { return { status: answer.status, ...(await answer.json()) }; } catch { return { status: answer.status, error: `This was not saved: the server answered with ${answer.status}. Load the page again.` }; }
  };
  const work = async (act) => {
    if (busy) return;
    busy = true;
    desk().setAttribute("aria-busy", "true");
    try { await act(); } finally { busy = false; desk()?.removeAttribute("aria-busy"); }
  };
  const decide = (say) => work(async () => {
    if (desk().hasAttribute("data-ruling") && !new FormData(form()).get("cause")) { warn("Name the cause of the disagreement first."); form().querySelector("input[name=cause]").focus(); return; }
    const values = { ...Object.fromEntries(new FormData(form())), say, token, seconds: (elapsed() / 1000).toFixed(2) };
    const done = await send(desk().dataset.here, values);
    if (done.error) {
      warn(done.error);
      if (done.status === 409) { ready.clear(); show(await load(desk().dataset.here), desk().dataset.here, false); warn(done.error); }
      return;
    }
    await go(done.next);
    tell(done.said);
    for (const name of ["done", "left"]) {
      const count = root.querySelector(`[data-${name}]`);
      if (count && done[name] !== undefined) count.textContent = done[name].toLocaleString("en");
    }
  });
  const undo = () => work(async () => {
    const done = await send(desk().dataset.undo, { token });
    newToken();
    if (done.error) { warn(done.error); return; }
    ready.clear();
    if (done.said === "Taken back" || /\/(item|rule)\/\d+$/.test(done.next)) await go(done.next);
    tell(done.said);
  });
  const reveal = (what) => work(async () => {
    const button = root.querySelector(`[data-reveal="${what}"]`);
    if (!button) return;
    const done = await send(desk().dataset.here + "/reveal", { what });
    if (done.error) { warn(done.error); return; }
    const before = Object.fromEntries(["note", "sentence", "start", "end"].map((name) => [name, field(name).value]));
    const opened = root.querySelector("details.noted").open;
    root.innerHTML = await load(desk().dataset.here);
    for (const [name, value] of Object.entries(before)) field(name).value = value;
    root.querySelector("details.noted").open = opened;
    showProof();
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
    const [start, end] = [field("start").value, field("end").value];
    for (const each of sentences()) each.classList.toggle("proof", start !== "" && Number(each.dataset.a) < Number(end) && Number(each.dataset.b) > Number(start));
  };
  const setProof = (start, end, text) => {
    field("start").value = start; field("end").value = end;
    showProof();
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
    const fold = all[marking].closest("details");
    if (fold) fold.open = true;
    all[marking].scrollIntoView({ block: "nearest" });
    said.textContent = `Sentence ${marking + 1} of ${all.length}: ${all[marking].textContent.trim().slice(0, 120)} (Enter marks it)`;
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
    if (marking >= 0) { stopMarking(); return; }
    root.classList.add("marking");
    root.querySelector("[data-act=mark]")?.setAttribute("aria-pressed", "true");
    point(Math.max(0, sentences().findIndex((each) => each.querySelector("mark"))));
  };

  const note = () => {
    const details = root.querySelector("details.noted");
    details.open = true;
    field("note").focus();
  };
  const walk = (name) => { const address = desk().dataset[name]; if (address) work(() => go(address)); };
  const toggleGuide = () => { const guide = root.querySelector(".guide"); guide.open = !guide.open; if (guide.open) guide.querySelector("summary").focus(); };
  const acts = { note, mark, undo, before: () => walk("before"), after: () => walk("after"), help: () => dialog.showModal() };
  const causes = { q: "question", d: "guideline", k: "knowledge", l: "slip" };
  const keys = { u: () => decide("unsure"), s: () => decide("skip"), n: note, h: mark, z: undo, a: () => reveal("answer"), r: () => reveal("reasoning"), g: toggleGuide, ArrowLeft: acts.before, ArrowRight: acts.after, "?": acts.help };

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
    if (!keysOn.checked || event.repeat) return;
    if (event.target.matches("input[type=radio]") && event.key.startsWith("Arrow")) return;
    const digit = /^\d$/.test(event.key) && root.querySelector(`[data-say="${event.key}"]`);
    const cause = desk().hasAttribute("data-ruling") && causes[event.key];
    if (digit) { event.preventDefault(); decide(event.key); }
    else if (cause) { event.preventDefault(); root.querySelector(`input[name=cause][value=${cause}]`).checked = true; tell(root.querySelector(`input[name=cause][value=${cause}]`).parentElement.textContent.trim().replace(/\s+\w$/, "")); }
    else if (keys[event.key] && !(desk().hasAttribute("data-ruling") && "usha".includes(event.key))) { event.preventDefault(); keys[event.key](); }
  });
  addEventListener("popstate", () => go(location.pathname, false));
  keysOn.checked = stored("r2med-keys") !== "off";
  keysOn.addEventListener("change", () => { try { localStorage.setItem("r2med-keys", keysOn.checked ? "on" : "off"); } catch { /* not kept */ } });
  settle();
  root.querySelector("#read-h").focus({ preventScroll: true });
})();
