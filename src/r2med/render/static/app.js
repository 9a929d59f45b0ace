// Theme, sorting and filtering of tables, and live search. Every text is put in place as text.
"use strict";
(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const stored = () => { try { return localStorage.getItem("r2med-theme"); } catch { return null; } };
  const isDark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const show = () => { if (button) button.textContent = isDark() ? "Light" : "Dark"; };
  if (["light", "dark"].includes(stored())) root.dataset.theme = stored();
  show();
  button?.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("r2med-theme", root.dataset.theme); } catch { /* a page from a file may keep nothing */ }
    show();
  });

  const value = (row, column) => {
    const cell = row.cells[column];
    const raw = cell.dataset.v ?? cell.textContent.trim();
    const number = Number(raw);
    return raw === "" ? null : Number.isNaN(number) ? raw.toLowerCase() : number;
  };
  const sortBy = (table, head, down) => {
    const column = head.cellIndex;
    const rows = [...table.tBodies[0].rows];
    const compare = (a, b) => {
      const [x, y] = [value(a, column), value(b, column)];
      if (x === null || y === null) return (x === null) - (y === null);
      return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1);
    };
    rows.sort(compare).forEach((row) => table.tBodies[0].append(row));
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
  };
  document.querySelectorAll("table[data-sortable] thead button").forEach((each) => each.addEventListener("click", () => {
    const head = each.closest("th");
    const before = head.getAttribute("aria-sort");
    sortBy(head.closest("table"), head, before ? before === "ascending" : head.classList.contains("n") && !head.classList.contains("rank"));
  }));

  document.querySelectorAll("form[data-filter]").forEach((form) => {
    const table = document.getElementById(form.dataset.filter);
    const count = document.getElementById(form.dataset.filter + "-count");
    const apply = () => {
      const words = (form.elements.text?.value ?? "").toLowerCase().split(/\s+/).filter(Boolean);
      const kind = form.elements.kind?.value ?? "";
      const origin = form.elements.origin?.value ?? "";
      let shown = 0;
      for (const row of table.tBodies[0].rows) {
        const fits = words.every((word) => row.dataset.text.includes(word)) && (!kind || row.dataset.kind === kind) && (!origin || row.dataset.origin === origin);
        row.hidden = !fits;
        shown += fits;
      }
      if (count) count.textContent = `${shown} systems`;
    };
    form.addEventListener("input", apply);
    form.addEventListener("submit", (event) => { event.preventDefault(); apply(); });
  });

  document.querySelectorAll("form[data-auto] select, form[data-auto] input[type=checkbox]").forEach((each) => each.addEventListener("change", () => each.form.requestSubmit()));

  // Another group has other systems: its page offers them.
  document.querySelectorAll("form[data-group] select[name=group]").forEach((each) => each.addEventListener("change", () => {
    location.assign(each.form.action + "?" + new URLSearchParams({ group: each.value }));
  }));
  // Of a long document only the start is in the page; the rest is asked for when somebody wants to read it.
  document.addEventListener("toggle", async (event) => {
    const opened = event.target;
    if (!opened.dataset?.text || !opened.open || opened.dataset.there) return;
    opened.dataset.there = "yes";
    const place = opened.querySelector(".whole");
    try {
      const answer = await fetch(opened.dataset.text + "&part=1");
      if (answer.ok) place.innerHTML = await answer.text();
    } catch { delete opened.dataset.there; }
  }, true);

  // Who is not let in any more is told by the page itself.
  const ask = async (address) => {
    const answer = await fetch(address);
    if (answer.status === 403) location.reload();
    return answer;
  };
  const live = document.querySelector("form[data-live]");
  if (live) {
    const target = document.getElementById("found");
    let timer = 0, asked = 0;
    const search = async () => {
      const mine = ++asked;
      const query = new URLSearchParams(new FormData(live));
      history.replaceState(null, "", "?" + query);
      target.setAttribute("aria-busy", "true");
      try {
        const answer = await ask(live.dataset.live + "?" + query);
        const text = await answer.text();
        // The server escapes every text; the page's policy allows no script in it either.
        if (mine === asked) target.innerHTML = text;
      } catch {
        if (mine === asked) target.textContent = "The server does not answer; is r2med serve still running?";
      }
      if (mine === asked) target.removeAttribute("aria-busy");
    };
    const soon = () => { clearTimeout(timer); timer = setTimeout(search, 250); };
    live.addEventListener("input", (event) => { if (event.target.name !== "task") soon(); });
    live.addEventListener("submit", (event) => { event.preventDefault(); clearTimeout(timer); search(); });
    live.elements.task?.addEventListener("change", () => { live.removeAttribute("data-live"); live.submit(); });
  }

  document.querySelectorAll("form[method=post]").forEach((form) => form.addEventListener("submit", () => {
    // After the form was read: a button that is not there any more cannot be pressed twice.
    setTimeout(() => form.querySelectorAll("button").forEach((each) => { each.disabled = true; }));
  }));
  addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });

  const away = document.querySelector("[data-away]");
  const bars = document.querySelector("[data-progress]");
  let shown = "";
  if (bars) setInterval(async () => {
    try {
      const answer = await ask(bars.dataset.progress);
      const text = await answer.text();
      if (!answer.ok) throw new Error(text);
      // What somebody is reading is not put there anew unless it has changed.
      if (text !== shown) bars.innerHTML = text;
      shown = text;
      away.hidden = true;
    } catch { away.hidden = false; }
  }, 2000);

  const waiting = document.querySelector("[data-wait]");
  if (waiting) {
    const timer = setInterval(async () => {
      try {
        const state = await (await fetch(waiting.dataset.wait)).text();
        if (!["waiting", "running"].includes(state)) { clearInterval(timer); location.reload(); }
      } catch { waiting.textContent = "The server does not answer; is r2med serve still running?"; }
    }, 1000);
  }
})();
