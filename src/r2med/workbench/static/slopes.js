// Lines that join the same document in neighbouring lists, drawn for the places that the rows have just now.
"use strict";
(() => {
  const NS = "http://www.w3.org/2000/svg";
  const draw = (place) => {
    let sheet = place.querySelector(":scope > svg.slopes");
    if (!sheet) {
      sheet = document.createElementNS(NS, "svg");
      sheet.setAttribute("class", "slopes");
      sheet.setAttribute("aria-hidden", "true");
      place.append(sheet);
    }
    const lists = [...place.querySelectorAll(":scope > section")].filter((each) => each.offsetParent);
    const frame = place.getBoundingClientRect();
    const paths = [];
    lists.slice(1).forEach((right, number) => {
      const left = lists[number];
      const [from, to] = [left.getBoundingClientRect(), right.getBoundingClientRect()];
      if (to.left < from.right) return;  // one below the other: nothing lies between them
      const rows = new Map([...left.querySelectorAll("li[data-doc]")].map((row) => [row.dataset.doc, row]));
      for (const row of right.querySelectorAll("li[data-doc]")) {
        const other = rows.get(row.dataset.doc);
        if (!other) continue;
        const middle = (each) => each.querySelector(".head").getBoundingClientRect();
        const [one, two] = [middle(other), middle(row)];
        const [x1, x2] = [from.right - frame.left + place.scrollLeft + 1, to.left - frame.left + place.scrollLeft - 1];
        const [y1, y2] = [one, two].map((box) => Math.round(box.top + box.height / 2 - frame.top + place.scrollTop));
        const bend = (x2 - x1) / 2;
        const path = document.createElementNS(NS, "path");
        path.setAttribute("d", `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`);
        path.setAttribute("class", row.classList.contains("relevant") ? "good" : "");
        path.dataset.doc = row.dataset.doc;
        paths.push(path);
      }
    });
    // Those of relevant documents lie above the others.
    paths.sort((a, b) => (a.getAttribute("class") === "good") - (b.getAttribute("class") === "good"));
    sheet.replaceChildren(...paths);
    const size = lists.reduce((most, each) => Math.max(most, each.offsetTop + each.offsetHeight), 0);
    sheet.setAttribute("width", lists.length ? lists.at(-1).offsetLeft + lists.at(-1).offsetWidth : 0);
    sheet.setAttribute("height", size);
  };
  const light = (root, name) => {
    for (const each of root.querySelectorAll(".lit")) each.classList.remove("lit");
    if (name === undefined) return;
    for (const each of root.querySelectorAll("[data-doc]")) if (each.dataset.doc === name) each.classList.add("lit");
  };
  // A place with lists, and all that names the same documents around it.
  window.joinLists = (place, root) => {
    const again = () => requestAnimationFrame(() => draw(place));
    const watch = new ResizeObserver(again);
    const refresh = () => {
      watch.disconnect();
      watch.observe(place);
      for (const each of place.querySelectorAll(":scope > section")) watch.observe(each);
      again();
    };
    root.addEventListener("pointerover", (event) => light(root, event.target.closest?.("li[data-doc]")?.dataset.doc));
    root.addEventListener("focusin", (event) => light(root, event.target.closest?.("li[data-doc]")?.dataset.doc));
    root.addEventListener("pointerleave", () => light(root));
    refresh();
    return refresh;  // for lists that are put there anew
  };
})();
