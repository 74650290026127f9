// The page of one stack: what bites there.
"use strict";
(() => {
  const { h, data } = thaw;
  const into = document.getElementById("out"), form = document.getElementById("choose");

  const groups = data.groups.map((title, at) => h("optgroup", { label: title },
    data.stacks.filter((one) => one.group === at).map((one) => h("option", { value: one.key }, one.key))));
  form.stack.append(...groups);

  function show() {
    const state = thaw.state(), stack = data.stackOf.get(state.stack || "") || (state.stack ? null : data.stacks[0]);
    form.stage.value = ["0", "1", "2", "3"].includes(state.stage) ? state.stage : "";
    if (!stack) { into.replaceChildren(h("h1", {}, "No such stack"), h("p", {}, `Nothing was measured on ${state.stack}; choose another above.`)); return; }
    form.stack.value = stack.key;
    document.title = `${stack.key} – thawcheck`;
    // Only a sweep has an order.
    const neighbours = stack.key === stack.label ? [stack] : data.stacks.filter((one) => one.group === stack.group), at = neighbours.indexOf(stack);
    const link = (one, text) => one ? h("a", { href: thaw.stackPage(one) }, `${text} ${one.label}`) : "";
    const results = data.cases.map((kase) => ({ kase, stack, found: thaw.cell(kase, stack, thaw.stageOf(kase, form.stage.value)) }));
    into.replaceChildren(
      h("p", { class: "crumbs" }, link(neighbours[at - 1], "older:"), neighbours[at - 1] && neighbours[at + 1] ? " · " : "", link(neighbours[at + 1], "newer:")),
      h("h1", {}, stack.key),
      h("p", { class: "muted" }, stack.description, stack.description ? "; " : "", `measured ${stack.measured} on ${stack.device}`),
      thaw.tiles(thaw.versionsOf(stack)),
      neighbours[at - 1] ? h("p", {}, h("a", { href: `compare.html#${new URLSearchParams({ a: neighbours[at - 1].key, b: stack.key })}` }, `What changed since ${neighbours[at - 1].label}`)) : "",
      ...(stack.unsolvable ? [h("h2", {}, "It cannot be installed"), h("p", {}, stack.unsolvable)] : thaw.bites(results).filter(Boolean)));
  }

  form.addEventListener("input", () => { thaw.keep({ stack: form.stack.value, stage: form.stage.value }); show(); });
  form.addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("hashchange", show);
  show();
  document.documentElement.dataset.ready = "1";
})();
