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

  // Copying: of the address, which holds all that is chosen, and of what there is to be cited.
  const copy = async (text, button) => {
    const before = button.textContent;
    try { await navigator.clipboard.writeText(text); } catch {
      const field = document.createElement("textarea");
      field.value = text;
      document.body.append(field);
      field.select();
      document.execCommand("copy");
      field.remove();
      button.focus();
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = before; }, 1500);
  };
  document.querySelectorAll("[data-copy-link]").forEach((each) => each.addEventListener("click", () => copy(location.href, each)));
  document.querySelectorAll("pre[data-copy]").forEach((each) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    button.setAttribute("aria-label", `Copy: ${each.previousElementSibling.textContent}`);
    button.addEventListener("click", () => copy(each.textContent, button));
    each.after(button);
  });

  // What a static page shows is kept behind the # of its address, what a server shows in its query.
  const local = !document.querySelector("form[action]");
  const state = () => new URLSearchParams(local ? location.hash.slice(1) : location.search);
  const remember = (values) => {
    const text = values.toString();
    try { history.replaceState(null, "", local ? "#" + text : text ? "?" + text : location.pathname); } catch { /* a page from a file may have no say */ }
  };
  const bodyOf = (table) => table.querySelector("tbody:not(.ceiling)");
  const value = (row, column) => {
    const cell = row.cells[column];
    const raw = cell.dataset.v ?? cell.textContent.trim();
    const number = Number(raw);
    return raw === "" ? null : Number.isNaN(number) ? raw.toLowerCase() : number;
  };
  const sortBy = (table, head, down) => {
    const column = Number(head.dataset.column ?? head.cellIndex);
    const rows = [...bodyOf(table).rows];
    const compare = (a, b) => {
      const [x, y] = [value(a, column), value(b, column)];
      if (x === null || y === null) return (x === null) - (y === null);
      return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1);
    };
    rows.sort(compare).forEach((row) => bodyOf(table).append(row));
    for (const other of table.tHead.querySelectorAll("th")) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
  };
  const nameOf = (head) => head.dataset.key || (head.classList.contains("rank") ? "rank" : head.classList.contains("sys") ? "name" : "average");
  document.querySelectorAll("table[data-sortable]").forEach((table) => {
    const wanted = state().get("sort") ?? "";
    const head = [...table.tHead.querySelectorAll("th[data-column]")].find((each) => each.querySelector("button") && nameOf(each) === wanted.replace(/^-/, ""));
    if (head) sortBy(table, head, wanted.startsWith("-"));
  });
  document.querySelectorAll("table[data-sortable] thead button").forEach((each) => each.addEventListener("click", () => {
    const head = each.closest("th");
    const before = head.getAttribute("aria-sort");
    const down = before ? before === "ascending" : head.matches(".n:not(.rank, .cost), .forest");
    sortBy(head.closest("table"), head, down);
    const now = state();
    now.set("sort", (down ? "-" : "") + nameOf(head));
    remember(now);
  }));

  // Against a baseline, whose tests were made beforehand: signs behind the figures, and the difference of the averages.
  const tests = document.getElementById("baselines");
  const against = (table, name) => {
    if (!tests) return;
    const { columns, marks } = JSON.parse(tests.textContent);
    const row = (each) => each.querySelector("input[form=chosen]")?.value;
    const rows = [...bodyOf(table).rows].filter((each) => each.classList.contains("own"));
    const base = Number(rows.find((each) => row(each) === name)?.cells[2].dataset.v);
    const places = columns.map((column) => Number([...table.tHead.querySelectorAll("th[data-key]")].find((head) => column && head.dataset.key === column)?.dataset.column ?? 2));
    for (const each of bodyOf(table).rows) each.querySelector("td.difference").hidden = !name;
    table.tHead.querySelector("th.difference").hidden = !name;
    for (const each of rows) {
      const signs = marks[name]?.[row(each)] ?? "";
      places.forEach((place, number) => {
        const cell = each.cells[place];
        cell.dataset.plain ??= cell.textContent;
        cell.textContent = cell.dataset.plain + ({ b: "†", w: "‡" }[signs[number]] ?? "");
      });
      const value = each.cells[2].dataset.v;
      const found = name && value !== "" ? (100 * (Number(value) - base)).toFixed(2) : "";
      each.querySelector("td.difference").textContent = found === "" ? "" : Number(found) === 0 ? "0.00" : (found > 0 ? "+" : "−") + found.replace("-", "");
    }
    const note = document.querySelector("[data-baseline-note]");
    note.hidden = !name;
    note.querySelector("code").textContent = name;
  };

  document.querySelectorAll("form[data-filter]").forEach((form) => {
    const table = document.getElementById(form.dataset.filter);
    const count = document.getElementById(form.dataset.filter + "-count");
    const parts = ["source", "retriever", "llm", "reranker"].filter((name) => form.elements[name]);
    const wanted = (name) => form.elements[name]?.value ?? "";
    const apply = () => {
      const words = wanted("text").toLowerCase().split(/\s+/).filter(Boolean);
      const [kind, origin] = [wanted("kind"), wanted("origin")];
      const ceilings = !form.elements.oracles || form.elements.oracles.checked || kind === "oracle";
      let shown = 0;
      for (const row of bodyOf(table).rows) {
        const has = (name) => !wanted(name) || (row.dataset[name] ?? "").split("|").includes(wanted(name));
        const fits = words.every((word) => row.dataset.text.includes(word)) && (!kind || row.dataset.kind === kind) && (!origin || row.dataset.origin === origin)
          && parts.every(has) && (ceilings || !row.classList.contains("oracle")) && !("left" in row.dataset);
        row.hidden = !fits;
        shown += fits;
      }
      if (count) count.textContent = `${shown} ${shown === 1 ? "system" : "systems"}`;
      const line = table.querySelector("tbody.ceiling");
      if (line) line.hidden = ceilings;
      against(table, wanted("baseline"));
    };
    const kept = state();
    for (const field of form.elements) {
      if (!field.name || !kept.has(field.name)) continue;
      if (field.type === "checkbox") field.checked = true; else field.value = kept.get(field.name);
    }
    form.addEventListener("input", () => {
      apply();
      const now = state();
      for (const field of form.elements) if (field.name) now.delete(field.name);
      for (const [name, text] of new FormData(form)) if (text) now.set(name, text);
      remember(now);
    });
    form.addEventListener("submit", (event) => { event.preventDefault(); apply(); });
    form.apply = apply;
    apply();
  });

  // Which columns a board shows.
  document.querySelectorAll("details[data-columns]").forEach((picker) => {
    const table = document.getElementById(picker.dataset.columns);
    const heads = [...table.tHead.querySelectorAll("th[data-key]")];
    const hidden = new Set((state().get("hide") ?? "").split(",").filter(Boolean));
    const apply = () => {
      for (const head of heads) {
        head.hidden = hidden.has(head.dataset.key);
        for (const row of bodyOf(table).rows) row.cells[Number(head.dataset.column)].hidden = head.hidden;
      }
      for (const family of table.tHead.querySelectorAll("th[data-family]")) {
        const shown = heads.filter((head) => head.dataset.group === family.dataset.family && !head.hidden).length;
        family.hidden = !shown;
        if (shown) family.colSpan = shown;
      }
    };
    const tell = () => {
      const text = [...hidden].join(",");
      const now = state();
      if (text) now.set("hide", text); else now.delete("hide");
      remember(now);
      if (local) return;
      for (const link of document.querySelectorAll("table.board thead a, .pages a")) {
        const place = new URL(link.href);
        if (text) place.searchParams.set("hide", text); else place.searchParams.delete("hide");
        link.href = place.pathname + place.search;
      }
      const form = document.querySelector("form[data-auto]");
      let field = form.elements.hide;
      if (!field) { field = document.createElement("input"); field.type = "hidden"; field.name = "hide"; form.append(field); }
      field.value = text;
      field.disabled = !text;
    };
    for (const head of heads) {
      const label = document.createElement("label");
      const box = document.createElement("input");
      box.type = "checkbox";
      box.checked = !hidden.has(head.dataset.key);
      box.addEventListener("change", () => { if (box.checked) hidden.delete(head.dataset.key); else hidden.add(head.dataset.key); apply(); tell(); });
      label.className = "check";
      const family = head.classList.contains("mean") ? head.dataset.group + ", mean" : "";
      label.append(box, " " + (family || head.firstChild.textContent.trim()));
      picker.lastElementChild.append(label);
    }
    picker.hidden = heads.length < 2;
    if (hidden.size) { apply(); tell(); }
  });

  // The bar of chosen systems: there as soon as there are two.
  const bar = document.querySelector("form[data-chosen]");
  if (bar) {
    // A box for each system that is shown, and a hidden field for each that was ticked on another page.
    const boxes = () => [...document.querySelectorAll("input[form=chosen]")];
    const chosen = () => boxes().filter((box) => box.checked || box.type === "hidden");
    // Ticks are in the address, so that another page, filter or order of the board does not lose them.
    const keepTicks = (values) => {
      values.delete("tick");
      for (const name of new Set(chosen().map((box) => box.value))) values.append("tick", name);
      return values;
    };
    if (local) for (const name of state().getAll("tick")) for (const box of boxes()) if (box.value === name) box.checked = true;
    document.querySelector("form[data-auto]")?.addEventListener("formdata", (event) => keepTicks(event.formData));
    document.addEventListener("click", (event) => {
      const link = event.target.closest?.("table.board thead a, .pages a");
      if (!link) return;
      const place = new URL(link.href);
      keepTicks(place.searchParams);
      link.href = place.pathname + place.search;
    });
    const update = () => {
      const ticked = chosen();
      const own = ticked.every((box) => "own" in box.dataset);
      bar.hidden = ticked.length < 2;
      document.body.classList.toggle("choosing", ticked.length > 1);
      bar.querySelector("output").textContent = ticked.length > 3 ? `${ticked.length} systems` : ticked.map((box) => box.dataset.title ?? box.value).join(" · ");
      const pair = bar.querySelector("a[data-compare]");
      if (pair) {
        pair.hidden = ticked.length !== 2;
        if (!pair.hidden) pair.hash = String(new URLSearchParams({ a: ticked[0].value, b: ticked[1].value }));
      }
      for (const each of bar.querySelectorAll("button[data-needs]")) {
        const two = each.dataset.needs === "two";
        each.disabled = two ? ticked.length !== 2 : !own;
        each.title = !each.disabled ? "" : two ? "Choose two systems to compare" : "Only own runs have queries to look at";
      }
    };
    document.addEventListener("change", (event) => { if (event.target.getAttribute?.("form") === "chosen") { update(); remember(keepTicks(state())); } });
    bar.addEventListener("reset", () => setTimeout(() => {
      for (const box of boxes()) if (box.type === "hidden") box.remove(); else box.checked = false;
      remember(keepTicks(state()));
      document.querySelectorAll("tr[data-left]").forEach((row) => delete row.dataset.left);
      document.querySelector("form[data-filter]")?.apply();
      update();
    }));
    addEventListener("pageshow", update);
    update();
    const rows = () => [...document.querySelectorAll("table.board tbody:not(.ceiling) tr")];
    bar.querySelector("[data-only]")?.addEventListener("click", () => {
      for (const row of rows()) if (row.querySelector("input[form=chosen]").checked) delete row.dataset.left; else row.dataset.left = "yes";
      document.querySelector("form[data-filter]")?.apply();
    });
    // A static page has nobody to ask for a file: it writes the table down that is there.
    const table = (ending) => {
      const heads = [...document.querySelectorAll("table.board thead th[data-column]")].filter((head) => !head.hidden && !head.classList.contains("forest"))
        .sort((a, b) => a.dataset.column - b.dataset.column);
      const chosen = rows().filter((row) => row.querySelector("input[form=chosen]").checked);
      const cell = (row, head) => {
        const found = row.cells[Number(head.dataset.column)];
        if (head.classList.contains("sys")) return row.querySelector("input[form=chosen]").value;
        return ending === "csv" && found.dataset.v !== undefined ? found.dataset.v : head.classList.contains("rank") ? found.dataset.v : found.textContent.trim();
      };
      const title = (head) => (head.title && !head.classList.contains("mean") ? head.title : head.dataset.group && head.classList.contains("mean") ? `mean ${head.dataset.group}` : head.textContent.trim());
      const lines = [heads.map(title), ...chosen.map((row) => heads.map((head) => cell(row, head)))];
      if (ending === "csv") return lines.map((line) => line.map((text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text)).join(",")).join("\n") + "\n";
      const plain = (text) => text.replace(/[\\{}]/g, "").replace(/[&%$#_]/g, "\\$&").replace(/[<>]/g, "$$$&$$").replaceAll("–", "--").replaceAll("−", "$-$").replaceAll("†", "$^\\dagger$").replaceAll("‡", "$^\\ddagger$").replaceAll("°", "$^\\circ$").replaceAll("Δ", "$\\Delta$").replaceAll("^", "\\^{}").replaceAll("$\\^{}", "$^").replaceAll("~", "\\~{}");
      const body = lines.map((line) => line.map(plain).join(" & ") + " \\\\");
      return `\\begin{tabular}{rl${"r".repeat(heads.length - 2)}}\n\\hline\n${body[0]}\n\\hline\n${body.slice(1).join("\n")}\n\\hline\n\\end{tabular}\n`;
    };
    bar.querySelectorAll("[data-file]").forEach((each) => each.addEventListener("click", () => {
      hand(new Blob([table(each.dataset.file)], { type: "text/plain" }), `board.${each.dataset.file}`);
    }));
  }

  // A chart as a file: with the colours that it has on light paper, and every letter as text.
  const LOOKS = ["fill", "stroke", "stroke-width", "stroke-dasharray", "font-family", "font-size", "font-weight", "text-anchor", "paint-order", "stroke-linejoin"];
  const ROOM = 10;
  const picture = (chart) => {
    const theme = root.dataset.theme;
    root.dataset.theme = "light";
    const copy = chart.cloneNode(true);
    const parts = [...chart.querySelectorAll("*")];
    [...copy.querySelectorAll("*")].forEach((part, place) => {
      const looks = getComputedStyle(parts[place]);
      if (part.matches("title, desc")) return;
      if (part.closest("defs")) { part.setAttribute("stroke-width", ".9"); return; }
      for (const name of LOOKS) if (!(name === "fill" && part.getAttribute("fill")?.startsWith("url"))) part.setAttribute(name, looks.getPropertyValue(name));
    });
    const back = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    // A little room around it: letters at the very edge would be cut by whatever shows the file.
    const { width, height } = chart.viewBox.baseVal;
    const [wide, high] = [width + 2 * ROOM, height + 2 * ROOM];
    for (const [name, text] of Object.entries({ x: -ROOM, y: -ROOM, width: wide, height: high, fill: "#ffffff" })) back.setAttribute(name, text);
    copy.prepend(back);
    for (const [name, text] of Object.entries({ viewBox: `${-ROOM} ${-ROOM} ${wide} ${high}`, width: wide, height: high })) copy.setAttribute(name, text);
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    if (theme) root.dataset.theme = theme; else delete root.dataset.theme;
    return new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" });
  };
  const hand = (blob, name) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };
  const painted = (chart) => new Promise((done, failed) => {
    const [image, canvas] = [new Image(), document.createElement("canvas")];
    image.onload = () => {
      [canvas.width, canvas.height] = [3 * (chart.viewBox.baseVal.width + 2 * ROOM), 3 * (chart.viewBox.baseVal.height + 2 * ROOM)];
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      URL.revokeObjectURL(image.src);
      canvas.toBlob(done, "image/png");
    };
    image.onerror = failed;
    image.src = URL.createObjectURL(picture(chart));
  });
  document.querySelectorAll("div.charts").forEach((place) => {
    const tools = document.createElement("div");
    tools.className = "tools noprint";
    const shown = () => [...place.querySelectorAll("svg.chart")].find((chart) => chart.getBoundingClientRect().width) ?? place.querySelector("svg.chart");
    const name = place.querySelector("svg.chart").getAttribute("aria-label").replace(/[^a-zA-Z0-9]+/g, "-").toLowerCase();
    for (const [title, act] of [["SVG", async () => hand(picture(shown()), name + ".svg")], ["PNG", async () => hand(await painted(shown()), name + ".png")]]) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = title;
      button.setAttribute("aria-label", `${place.querySelector("svg.chart").getAttribute("aria-label")} as ${title}`);
      button.addEventListener("click", act);
      tools.append(button);
    }
    place.insertBefore(tools, place.querySelector("details.figures"));
  });

  // What is left empty is not asked for, and makes an address long.
  document.addEventListener("formdata", (event) => {
    if (event.target.method !== "get" || !event.target.hasAttribute("action")) return;
    for (const name of new Set(event.formData.keys())) if (event.formData.getAll(name).every((text) => text === "")) event.formData.delete(name);
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

  // The live page is told what happens, card by card; so is a page that waits for a job.
  const spell = (seconds) => {
    const whole = Math.max(0, Math.round(seconds));
    const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
    return hours ? `${hours} h ${minutes} min` : minutes ? `${minutes} min ${whole % 60} s` : `${whole} s`;
  };
  const board = document.querySelector("[data-events]");
  const waiting = document.querySelector("[data-wait]");
  if (board) setInterval(() => {
    const now = Date.now() / 1000;
    for (const each of board.querySelectorAll("[data-since]")) each.textContent = spell(now - Number(each.dataset.since));
    for (const each of board.querySelectorAll("[data-until]")) each.textContent = spell(Number(each.dataset.until) - now);
  }, 1000);
  const put = (found) => {
    const there = new Map([...board.children].map((card) => [card.dataset.card, card]));
    for (const [name, html] of Object.entries(found.cards)) {
      const made = document.createElement("template");
      // The server escapes every text; the page's policy allows no script in it either.
      made.innerHTML = html.trim();
      const card = made.content.firstElementChild;
      const old = there.get(name);
      if (old?.matches("details")) card.open = old.open;
      const field = old?.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
      if (old) old.replaceWith(card);
      there.set(name, card);
      if (field) [...card.querySelectorAll("[aria-label]")].find((each) => each.getAttribute("aria-label") === field)?.focus();
    }
    found.order.forEach((name, place) => { if (board.children[place] !== there.get(name)) board.insertBefore(there.get(name), board.children[place] ?? null); });
    while (board.children.length > found.order.length) board.lastElementChild.remove();
    document.querySelector("nav.menu .dot")?.toggleAttribute("hidden", found.order.includes("nothing"));
    if (found.said) document.querySelector("[data-said]").textContent = found.said;
  };
  const away = document.querySelector("[data-away]");
  let silence = 0;
  const listen = () => {
    const events = new EventSource("/progress/events");
    events.onmessage = (event) => {
      const found = JSON.parse(event.data);
      clearTimeout(silence);
      silence = 0;
      if (away) away.hidden = true;
      if (board) put(found);
      if (waiting && !["waiting", "running", "stopping"].includes(found.jobs[waiting.dataset.wait])) { events.close(); location.reload(); }
    };
    events.onerror = async () => {
      silence ||= setTimeout(() => { if (away) away.hidden = false; }, 2000);
      // A browser tries again by itself while the connection is only lost; one that was refused is looked into.
      if (events.readyState !== EventSource.CLOSED) return;
      setTimeout(async () => { try { await ask("/static/icon.svg"); } catch { /* still away */ } listen(); }, 3000);
    };
    addEventListener("pagehide", () => events.close());
  };
  if (board || waiting) listen();
})();
