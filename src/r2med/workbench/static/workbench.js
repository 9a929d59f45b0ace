// The query workbench: keys, tabs and lists that are shown or not. All of it is in the address too, and goes along.
"use strict";
(() => {
  const bench = document.querySelector("[data-bench]");
  if (!bench) return;
  const CARRIED = ["tab", "gold", "hide"];
  const dialog = document.getElementById("keys");
  const keysOn = document.getElementById("keys-on");
  const gold = document.getElementById("gold");
  const stored = (name) => { try { return localStorage.getItem(name); } catch { return null; } };
  document.documentElement.classList.add("js");

  const remember = (name, value) => {
    const now = new URL(location.href);
    if (value) now.searchParams.set(name, value); else now.searchParams.delete(name);
    history.replaceState(null, "", now);
  };
  // What was switched here stays so on the next query.
  const carry = (target) => {
    const [now, next] = [new URL(location.href).searchParams, new URL(target, location.href)];
    for (const name of CARRIED) if (now.has(name)) next.searchParams.set(name, now.get(name)); else next.searchParams.delete(name);
    return next.href;
  };
  const main = document.getElementById("main");
  main.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='/query?']");
    if (!link || link.closest(".tabs")) return;
    const next = new URL(carry(link.href));
    // From the list of queries one goes to the query itself.
    if (link.closest(".querylist") && next.searchParams.get("tab") === "queries") next.searchParams.delete("tab");
    link.href = next.href;
  });
  for (const form of main.querySelectorAll("form[action='/query']")) form.addEventListener("submit", () => {
    const now = new URL(location.href).searchParams;
    for (const name of CARRIED) {
      let field = form.elements.namedItem(name);
      if (!field && now.has(name)) { field = document.createElement("input"); field.type = "hidden"; field.name = name; form.append(field); }
      if (field) { field.value = now.get(name) ?? ""; field.disabled = !now.has(name); }
    }
    for (const field of form.elements) if (field.name && field.value === "" && field.name !== "task") field.disabled = true;
  });

  const tabs = [...bench.querySelectorAll(".tabs a")];
  const showTab = (name) => {
    bench.dataset.tab = name;
    for (const each of tabs) if (each.dataset.tab === name) each.setAttribute("aria-current", "true"); else each.removeAttribute("aria-current");
    remember("tab", name);
  };
  for (const each of tabs) each.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    showTab(each.dataset.tab);
  });
  // An address that points at a part of the page opens it.
  const pointed = () => {
    const part = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)))?.closest(".part");
    const name = part && ["relevant", "written", "answers"].find((each) => part.id === each);
    if (name) { showTab(name); document.getElementById(decodeURIComponent(location.hash.slice(1))).scrollIntoView(); }
  };
  addEventListener("hashchange", pointed);
  pointed();

  const lists = bench.querySelector("[data-slopes]");
  const toggle = (number) => {
    const list = lists?.querySelector(`.onelist[data-number="${number}"]`);
    if (!list) return;
    list.hidden = !list.hidden;
    bench.querySelector(`button[data-list="${number}"]`).setAttribute("aria-pressed", String(!list.hidden));
    remember("hide", [...lists.querySelectorAll(".onelist")].filter((each) => each.hidden).map((each) => each.dataset.number).join(","));
  };
  for (const each of bench.querySelectorAll("button[data-list]")) each.addEventListener("click", () => toggle(each.dataset.list));
  if (lists) window.joinLists(lists, bench);
  gold?.addEventListener("toggle", () => remember("gold", gold.open ? "1" : ""));

  const here = bench.querySelector(".querylist .here");
  const box = bench.querySelector(".querylist");
  if (here && box.scrollHeight > box.clientHeight) box.scrollTop = here.offsetTop - box.offsetTop - box.clientHeight / 3;

  document.getElementById("help").addEventListener("click", () => dialog.showModal());
  keysOn.checked = stored("r2med-keys") !== "off";
  keysOn.addEventListener("change", () => { try { localStorage.setItem("r2med-keys", keysOn.checked ? "on" : "off"); } catch { /* not kept */ } });
  const acts = {
    j: () => document.querySelector("a[data-step='1']")?.click(),
    k: () => document.querySelector("a[data-step='-1']")?.click(),
    g: () => { if (gold) { gold.open = !gold.open; if (gold.open && !gold.checkVisibility()) showTab("question"); if (gold.open) gold.scrollIntoView({ block: "nearest" }); } },
    "/": () => { const field = bench.querySelector(".queries input[type=search]"); if (!field.checkVisibility()) showTab("queries"); field.focus(); },
    "?": () => dialog.showModal(),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
    if (event.target.closest("input, select, textarea, [contenteditable]")) return;
    if (!keysOn.checked && event.key !== "?") return;
    const act = acts[event.key] ?? (/^[1-6]$/.test(event.key) ? () => toggle(event.key) : null);
    if (!act) return;
    event.preventDefault();
    act();
  });
})();
