// The grid of cases and stacks: filters, keyboard, and what a cell tells. Rows and heads are all there from the
// start, with their links; cells are made when they come into view, so that a filter has little to do.
"use strict";
(() => {
  const { h, data } = thaw;
  const form = document.getElementById("filters"), table = document.getElementById("grid"), box = document.getElementById("box");
  const head = table.tHead, line = document.getElementById("line"), nothing = document.getElementById("nothing");
  const dialog = document.getElementById("cell"), legend = document.getElementById("legend"), said = document.getElementById("said");
  const FIELDS = ["q", "kind", "driver", "stage", "device", "axis", "package", "from", "to"];
  const picked = new Set();
  const rows = [];
  let columns = [], shown = [], focus = { row: 0, col: 0 }, chosen = [], sums = [];
  // Of the part in view, in pixels and in columns; read before anything is written, or each reading costs a layout.
  let view = null, span = { first: 0, end: 0 };
  const sizes = { row: 22, col: 20, name: 320 };

  function option(value, text) { return h("option", { value }, text); }

  function begin() {
    form.kind.append(...data.kinds.map((one) => option(one.name, `${one.name === one.title ? "" : `${one.name}: `}${one.title}`)));
    form.driver.append(...data.drivers.map(([name, title]) => option(name, title)));
    form.stage.append(...[...new Set(data.variants.map((one) => one.stage))].sort().map((one) => option(one, `stage ${one}`)));
    form.device.append(...[...new Set(data.stacks.map((one) => one.device))].sort().map((one) => option(one, one)));
    form.axis.append(...data.groups.map((one) => option(one, one)));
    form.package.append(...data.packages.map((one) => option(one.name, one.name)));
    const style = data.verdicts.map((one, at) => `td.v${at}::before{content:"${one.symbol}";content:"${one.symbol}"/""}`).join("");
    document.head.append(h("style", {}, style));
    data.verdicts.forEach((one, at) => legend.append(h("button", { type: "button", "aria-pressed": "false", title: one.means, "data-verdict": at,
      onclick: () => { picked.has(at) ? picked.delete(at) : picked.add(at); changed(); } },
      h("span", { class: `sw f-${one.family}`, "aria-hidden": "true" }, one.symbol), one.name, h("span", { class: "n" }))));
    if (data.judged) legend.append(h("button", { type: "button", id: "odd", "aria-pressed": "false", title: "only where a verdict is not the expected one",
      onclick: (event) => { const on = event.currentTarget.getAttribute("aria-pressed") !== "true"; event.currentTarget.setAttribute("aria-pressed", on); changed(); } },
      h("span", { class: "sw", "aria-hidden": "true", style: "box-shadow:inset 0 0 0 2px var(--fg)" }), "not as expected", h("span", { class: "n" })));
    legend.append(said);
    const phone = matchMedia("(max-width: 720px)"), details = form.querySelector("details");
    details.open = !phone.matches;
    phone.addEventListener("change", () => { details.open = !phone.matches; });
    bodies();
    measure();
    restore();
    form.addEventListener("input", (event) => { if (event.target.name === "package") { form.from.value = form.to.value = ""; } changed(); });
    form.addEventListener("submit", (event) => event.preventDefault());
    document.getElementById("clear").addEventListener("click", () => { history.pushState(null, "", location.pathname + location.search); restore(); form.q.focus(); });
    box.addEventListener("scroll", () => requestAnimationFrame(() => { look(); fill(); }), { passive: true });
    window.addEventListener("resize", () => { measure(); look(); fill(); });
    window.addEventListener("hashchange", restore);
    table.addEventListener("keydown", key);
    table.addEventListener("click", (event) => { const at = placeOf(event.target); if (at && at.col >= 0 && at.row >= 0) open(at); });
    table.addEventListener("mouseover", (event) => { const at = placeOf(event.target); if (at) tell(at); });
    table.addEventListener("focusin", (event) => { const at = placeOf(event.target); if (at) { focus = at; name(at); tell(at); } });
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
    dialog.addEventListener("close", () => { thaw.keep({ ...thaw.state(), case: "", stack: "" }); move(focus.row, focus.col); });
  }

  function bodies() {
    for (const [at, kind] of data.kinds.entries()) {
      const body = h("tbody", { "data-kind": kind.name });
      const title = kind.name === kind.title ? kind.title : `${kind.name.length === 1 ? `${kind.name}. ` : ""}${kind.title}`;
      body.append(h("tr", { class: "kind" }, h("th", { scope: "rowgroup" }, h("a", { href: `kind/${kind.name.toLowerCase()}.html`, tabindex: "-1" }, title)), h("td", {})));
      for (const kase of data.cases.filter((one) => one.kind === at)) {
        const row = h("tr", { class: "case" }, h("th", { scope: "row", title: kase.recipe }, h("a", { href: thaw.casePage(kase), tabindex: "-1" }, kase.name)));
        rows.push({ kase, row, body, stale: true, text: `${kase.name} ${kase.recipe} ${kase.happens}`.toLowerCase() });
        body.append(row);
      }
      table.append(body);
    }
  }

  function restore() {
    const state = thaw.state();
    // The versions to choose from depend on the package.
    form.package.value = state.package || "";
    versions();
    for (const name of FIELDS) { form[name].value = state[name] || ""; if (form[name].value === "" && state[name] && form[name].options) form[name].value = ""; }
    picked.clear();
    for (const name of (state.verdict || "").split(",")) { const at = data.verdicts.findIndex((one) => one.name === name); if (at >= 0) picked.add(at); }
    document.getElementById("odd")?.setAttribute("aria-pressed", state.odd === "1");
    render();
    const kase = data.caseOf.get(state.case), stack = data.stackOf.get(state.stack);
    if (kase && stack) show(kase, stack); else if (dialog.open) dialog.close();
  }

  function versions() {
    const one = data.packages.find(({ name }) => name === form.package.value);
    for (const field of [form.from, form.to]) {
      const before = field.value;
      field.replaceChildren(option("", field === form.from ? "oldest" : "newest"), ...(one ? one.versions.map((each) => option(each, each)) : []));
      field.value = one && one.versions.includes(before) ? before : "";
      field.disabled = !one;
    }
  }

  function changed() {
    versions();
    const values = Object.fromEntries(FIELDS.map((name) => [name, form[name].value.trim()]));
    thaw.keep({ ...values, verdict: [...picked].sort((x, y) => x - y).map((at) => data.verdicts[at].name).join(","), odd: odd() ? "1" : "" });
    render();
  }

  const odd = () => document.getElementById("odd")?.getAttribute("aria-pressed") === "true";

  function measure() {
    const style = getComputedStyle(document.documentElement);
    for (const name of Object.keys(sizes)) sizes[name] = parseFloat(style.getPropertyValue(`--${name}`));
  }

  function look() {
    view = { top: box.scrollTop, left: box.scrollLeft, height: box.clientHeight, width: box.clientWidth };
  }

  function visible(stack) {
    if (form.device.value && stack.device !== form.device.value) return false;
    if (form.axis.value && data.groups[stack.group] !== form.axis.value) return false;
    if (form.package.value) {
      const at = data.packages.findIndex(({ name }) => name === form.package.value), order = data.packages[at].versions;
      if (stack.versions[at] < 0) return false;
      if (form.from.value && stack.versions[at] < order.indexOf(form.from.value)) return false;
      if (form.to.value && stack.versions[at] > order.indexOf(form.to.value)) return false;
    }
    return true;
  }

  function render() {
    const began = performance.now();
    look();
    columns = data.stacks.filter(visible);
    heads();
    let mask = 0;
    for (const at of picked) mask |= 1 << at;
    const words = form.q.value.toLowerCase().split(/\s+/).filter(Boolean), counts = new Array(data.verdicts.length).fill(0);
    const driver = data.drivers.findIndex(([name]) => name === form.driver.value), only = odd();
    let surprises = 0;
    shown = [];
    for (const one of rows) {
      const kase = one.kase;
      let on = words.every((word) => one.text.includes(word)) && (!form.kind.value || data.kinds[kase.kind].name === form.kind.value) &&
        (driver < 0 || kase.drivers.includes(driver));
      if (on) {
        chosen[kase.place] = thaw.stageOf(kase, form.stage.value);
        sums[kase.place] = kase.patterns.map((pattern) => thaw.sum(pattern, chosen[kase.place]));
        on = chosen[kase.place].length > 0;
      }
      if (on) {
        let hit = !mask && !only;
        for (const stack of columns) {
          const found = foundOf(kase, stack);
          if ((!mask || found.mask & mask) && (!only || found.odd)) hit = true;
          for (const [verdict, count] of found.counts) counts[verdict] += count;
          surprises += found.odd;
        }
        on = hit;
      }
      one.row.hidden = !on;
      one.stale = true;
      if (on) { one.at = shown.length; shown.push(one); }
    }
    for (const body of table.tBodies) body.hidden = !body.querySelector("tr.case:not([hidden])");
    for (const button of legend.querySelectorAll("[data-verdict]")) {
      const at = Number(button.dataset.verdict);
      button.setAttribute("aria-pressed", picked.has(at));
      button.querySelector(".n").textContent = counts[at] ? counts[at].toLocaleString("en") : "";
      button.hidden = !counts[at] && !picked.has(at);
    }
    const button = document.getElementById("odd");
    if (button) { button.querySelector(".n").textContent = surprises.toLocaleString("en"); button.hidden = !surprises && !only; }
    nothing.hidden = shown.length > 0 && columns.length > 0;
    table.hidden = !nothing.hidden;
    const set = FIELDS.filter((one) => form[one].value).length;
    form.querySelector("summary").textContent = set ? `Filters (${set} set)` : "Filters";
    const total = counts.reduce((x, y) => x + y, 0);
    said.textContent = `${thaw.many(shown.length, "case")}, ${thaw.many(columns.length, "stack")}, ${thaw.many(total, "verdict")}`;
    focus = { row: Math.min(focus.row, shown.length - 1), col: Math.min(focus.col, columns.length - 1) };
    table.mask = mask;
    table.only = only;
    fill();
    table.dataset.ms = (performance.now() - began).toFixed(1);
  }

  function foundOf(kase, stack) {
    return stack.unsolvable ? thaw.cell(kase, stack) : sums[kase.place][kase.of[stack.place]];
  }

  const edge = (at) => at && columns[at].group !== columns[at - 1].group ? " edge" : "";

  function heads() {
    const groups = h("tr", { class: "groups" }), stacks = h("tr", { class: "stacks" });
    groups.append(h("th", { class: "corner", rowspan: "2", scope: "col" }, "Case"));
    for (let at = 0; at < columns.length;) {
      let end = at;
      while (end < columns.length && columns[end].group === columns[at].group) end++;
      groups.append(h("th", { scope: "colgroup", colspan: end - at, title: data.groups[columns[at].group] }, h("span", {}, data.groups[columns[at].group])));
      at = end;
    }
    columns.forEach((stack, at) => stacks.append(h("th", { scope: "col", class: edge(at).trim(), title: stack.description || stack.key },
      h("a", { href: thaw.stackPage(stack), tabindex: "-1", "aria-label": stack.key }, stack.label))));
    head.replaceChildren(groups, stacks);
    table.querySelector("colgroup").replaceChildren(h("col", { class: "name" }), ...columns.map(() => h("col")));
    table.style.width = `calc(var(--name) + ${columns.length} * var(--col))`;
    for (const one of table.querySelectorAll("tr.kind td")) one.colSpan = Math.max(1, columns.length);
  }

  // Cells of the rows and columns in view, and of a few around them.
  function fill() {
    const first = Math.max(0, Math.floor((view.left / sizes.col - 2) / 4) * 4);
    const end = Math.min(columns.length, Math.ceil(((view.left + view.width - sizes.name) / sizes.col + 2) / 4) * 4);
    if (first !== span.first || end !== span.end) { span = { first, end }; for (const one of shown) one.stale = true; }
    const top = view.top - 66, bottom = view.top + view.height + 66;
    let y = 0, kind = -1;
    for (const one of shown) {
      if (one.kase.kind !== kind) { kind = one.kase.kind; y += sizes.row; }
      if (one.stale && y + sizes.row > top && y < bottom) cells(one);
      y += sizes.row;
    }
    const at = elementAt(focus);
    if (at) at.tabIndex = 0;
  }

  function cells(one) {
    one.stale = false;
    let text = span.first ? `<td class="wait" colspan="${span.first}"></td>` : "";
    for (let at = span.first; at < span.end; at++) {
      const found = foundOf(one.kase, columns[at]), mask = table.mask;
      if (found.worst < 0) { text += `<td class="blank${edge(at)}">not measured</td>`; continue; }
      let verdict = found.worst, dim = "";
      // The worst of those that were asked for.
      if (found.mask & mask) verdict = 31 - Math.clz32((found.mask & mask) & -(found.mask & mask));
      else if (mask) dim = " dim";
      if (table.only && !found.odd) dim = " dim";
      const look = data.verdicts[verdict];
      text += `<td class="v${verdict} f-${look.family}${found.counts.length > 1 ? " mixed" : ""}${found.odd ? " odd" : ""}${dim}${edge(at)}">${look.name}</td>`;
    }
    if (span.end < columns.length) text += `<td class="wait" colspan="${columns.length - span.end}"></td>`;
    if (text === one.made) return;
    one.made = text;
    one.row.replaceChildren(one.row.firstChild);
    // Of words and numbers of our own alone.
    one.row.insertAdjacentHTML("beforeend", text);
  }

  // Where a column is in a row that has not all of them.
  const inRow = (col) => col - span.first + (span.first ? 1 : 0) + 1;

  // -- where somebody is: rows and columns from 0, -1 is a head --

  function placeOf(target) {
    const at = target.closest("td, th"), row = at?.closest("tr");
    if (!row || !table.contains(row)) return null;
    if (row.classList.contains("stacks")) return { row: -1, col: at.cellIndex };
    const one = shown.find((each) => each.row === row);
    if (!one || at.classList.contains("wait")) return null;
    return { row: one.at, col: at.cellIndex ? at.cellIndex - 1 - (span.first ? 1 : 0) + span.first : -1 };
  }

  function elementAt({ row, col }) {
    if (row < 0) return head.querySelector("tr.stacks")?.cells[Math.max(0, col)]?.querySelector("a");
    const one = shown[row];
    if (!one) return null;
    if (col < 0) return one.row.cells[0].querySelector("a");
    return one.stale || col < span.first || col >= span.end ? null : one.row.cells[inRow(col)] || null;
  }

  function move(row, col) {
    row = Math.max(-1, Math.min(shown.length - 1, row));
    col = Math.max(row < 0 ? 0 : -1, Math.min(columns.length - 1, col));
    reach(row, col);
    const at = elementAt({ row, col });
    if (!at) return;
    table.querySelectorAll('[tabindex="0"]').forEach((one) => { one.tabIndex = -1; });
    focus = { row, col };
    at.tabIndex = 0;
    at.focus({ preventScroll: true });
    into(at);
  }

  // A cell says all only when somebody comes to it: there are many, and each has its word already.
  function name({ row, col }) {
    if (row >= 0 && col >= 0) elementAt({ row, col }).setAttribute("aria-label", sentence(shown[row].kase, columns[col]));
  }

  // Scroll so that a cell that was not made yet is.
  function reach(row, col) {
    look();
    if (col >= 0) {
      const x = col * sizes.col, wide = view.width - sizes.name;
      if (x < view.left) box.scrollLeft = x; else if (x + sizes.col > view.left + wide - 16) box.scrollLeft = x + sizes.col - wide + 16;
    }
    look();
    fill();
    if (row >= 0 && shown[row].stale) cells(shown[row]);
  }

  // The heads stay in place and would hide what is under them.
  function into(at) {
    const one = at.getBoundingClientRect(), all = box.getBoundingClientRect();
    const left = all.left + table.tHead.rows[0].cells[0].offsetWidth, top = all.top + table.tHead.offsetHeight;
    if (at.closest("thead") === null) {
      if (one.top < top) box.scrollTop -= top - one.top; else if (one.bottom > all.bottom - 16) box.scrollTop += one.bottom - all.bottom + 16;
    }
    if (at.closest("tbody th") === null) {
      if (one.left < left) box.scrollLeft -= left - one.left; else if (one.right > all.right - 16) box.scrollLeft += one.right - all.right + 16;
    }
  }

  function key(event) {
    if (event.ctrlKey && !["Home", "End"].includes(event.key) || event.altKey || event.metaKey) return;
    const { row, col } = focus, page = Math.max(1, Math.floor(box.clientHeight / 26) - 3);
    const to = { ArrowUp: [row - 1, col], ArrowDown: [row + 1, col], ArrowLeft: [row, col - 1], ArrowRight: [row, col + 1],
      PageUp: [Math.max(0, row - page), col], PageDown: [row + page, col],
      Home: [event.ctrlKey ? 0 : row, event.ctrlKey ? 0 : -1], End: [event.ctrlKey ? shown.length - 1 : row, columns.length - 1] }[event.key];
    if (to) { event.preventDefault(); move(...to); return; }
    if ((event.key === "Enter" || event.key === " ") && row >= 0 && col >= 0) { event.preventDefault(); open(focus); }
  }

  function sentence(kase, stack) {
    const found = foundOf(kase, stack);
    return `${kase.name} on ${stack.key}: ${thaw.told(found)}${found.odd ? "; not as expected" : ""}`;
  }

  function tell({ row, col }) {
    head.querySelector("th.on")?.classList.remove("on");
    if (row < 0) { line.replaceChildren(h("b", {}, columns[col].key), ` ${columns[col].description}`); return; }
    const kase = shown[row].kase;
    if (col < 0) { line.replaceChildren(h("b", {}, kase.name), ` ${kase.recipe}`); return; }
    if (!columns[col]) return;
    head.querySelector("tr.stacks").cells[col]?.classList.add("on");
    const found = foundOf(kase, columns[col]);
    line.replaceChildren(h("b", {}, kase.name), " on ", h("b", {}, columns[col].key), `: ${thaw.told(found)}${found.odd ? "; not as expected" : ""}`);
  }

  // -- what a cell tells --

  function open({ row, col }) {
    const kase = shown[row].kase, stack = columns[col];
    if (foundOf(kase, stack).worst < 0) return;
    focus = { row, col };
    thaw.keep({ ...thaw.state(), case: kase.name, stack: stack.key }, true);
    show(kase, stack);
  }

  function show(kase, stack) {
    const title = h("h2", { id: "cell-title" }, kase.name, h("span", { class: "muted" }, " on "), stack.key);
    const inside = h("div", { class: "in" }, h("p", { class: "muted" }, "Loading…"));
    dialog.replaceChildren(h("div", { class: "bar" }, title, h("button", { type: "button", onclick: () => dialog.close() }, "Close")), inside);
    if (!dialog.open) dialog.showModal();
    dialog.scrollTop = 0;
    thaw.load(kase).then((plain) => {
      inside.replaceChildren(
        h("p", { class: "said" }, kase.recipe, ". ", thaw.rich(kase.happens)),
        kase.instead ? h("p", {}, h("strong", {}, "Instead: "), thaw.rich(kase.instead)) : "",
        ...thaw.story(kase, stack, plain),
        h("h3", {}, "To see it again"), h("pre", { class: "wrap" }, thaw.command(kase, stack)),
        h("h3", {}, "The stack"),
        thaw.tiles([...thaw.versionsOf(stack), ["device", stack.device], ["measured", stack.measured]]),
        plain.refs.length ? h("p", {}, "Reports: ", thaw.reports(plain.refs)) : "",
        h("p", {}, h("a", { href: thaw.casePage(kase) }, "All about this case"), " · ", h("a", { href: thaw.stackPage(stack) }, `All about ${stack.key}`)));
    }, (error) => inside.replaceChildren(h("p", {}, `${error.message}: the folder of this page is not whole.`)));
  }

  begin();
  document.documentElement.dataset.ready = "1";
})();
