// Two stacks, or one on two days: what each case does on either.
"use strict";
(() => {
  const { h, data } = thaw;
  const form = document.getElementById("two"), into = document.getElementById("out");

  for (const field of [form.a, form.b]) {
    field.append(...data.groups.map((title, at) => h("optgroup", { label: title },
      data.stacks.filter((one) => one.group === at).map((one) => h("option", { value: one.key }, one.key)))));
  }

  function show() {
    const state = thaw.state();
    const first = data.stackOf.get(state.a) || data.stackOf.get("oldest") || data.stacks[0];
    const last = data.stackOf.get(state.b) || data.stackOf.get("latest") || data.stacks[data.stacks.length - 1];
    form.a.value = first.key;
    form.b.value = last.key;
    form.only.value = ["worse", "better"].includes(state.only) ? state.only : "";
    form.stage.value = ["0", "1", "2", "3"].includes(state.stage) ? state.stage : "";
    document.title = `${first.key} and ${last.key} – thawcheck`;
    answer(first, last);
  }

  // What trained and does not any more is worse. One fault in place of another is neither: a silent one is no
  // better than one that raises.
  function way(before, after) {
    if ([before, after].some((one) => one === data.notRun || one === data.unsolvable)) return "unknown";
    return before === data.trains ? "worse" : after === data.trains ? "better" : "other";
  }

  function answer(first, last) {
    const rows = [], counts = { worse: 0, better: 0, other: 0, unknown: 0, same: 0, first: 0, last: 0 };
    const verdicts = (kase, stack) => stack.unsolvable ? null : kase.patterns[kase.of[stack.place]].verdicts;
    for (const kase of data.cases) {
      const before = verdicts(kase, first), after = verdicts(kase, last), groups = new Map();
      for (const at of thaw.stageOf(kase, form.stage.value)) {
        const [x, y] = [before ? before[at] : -1, after ? after[at] : -1];
        if (x < 0 && y < 0) continue;
        if (x < 0) counts.last++;
        else if (y < 0) counts.first++;
        else if (x === y) counts.same++;
        else { counts[way(x, y)]++; groups.set(`${x} ${y}`, [...(groups.get(`${x} ${y}`) || []), at]); }
      }
      for (const [pair, places] of groups) {
        const [x, y] = pair.split(" ").map(Number);
        rows.push({ kase, x, y, places, way: way(x, y) });
      }
    }
    const WAYS = { worse: "▼ worse", better: "▲ better", other: "◆ another fault", unknown: "– not run on one" };
    const order = ["worse", "other", "better", "unknown"];
    const some = rows.filter((one) => !form.only.value || one.way === form.only.value).sort((p, q) => order.indexOf(p.way) - order.indexOf(q.way) || Math.min(p.x, p.y) - Math.min(q.x, q.y));
    const apart = thaw.versionsOf(first).map(([name, version], at) => [name, version, thaw.versionsOf(last)[at][1]]).filter(([, x, y]) => x !== y);
    into.replaceChildren(
      h("h1", {}, first.key, h("span", { class: "muted" }, " → "), last.key),
      h("dl", { class: "facts" }, apart.map(([name, x, y]) => [h("dt", {}, name), h("dd", {}, `${x || "absent"} → ${y || "absent"}`)]),
        first.measured === last.measured ? "" : [h("dt", {}, "measured"), h("dd", {}, `${first.measured} → ${last.measured}`)],
        first.device === last.device ? "" : [h("dt", {}, "device"), h("dd", {}, `${first.device} → ${last.device}`)]),
      first.unsolvable || last.unsolvable ? h("p", {}, "One of them cannot be installed, so there is nothing to compare.") : "",
      h("p", { id: "counts" }, `${thaw.many(counts.worse, "verdict")} worse, ${counts.better} better, ${counts.other} another fault, ${counts.same} the same`,
        counts.unknown ? `, ${counts.unknown} not run on one` : "", counts.first ? `; ${counts.first} measured on ${first.key} only` : "", counts.last ? `; ${counts.last} on ${last.key} only` : "", "."),
      some.length ? h("div", { class: "tablewrap" }, h("table", { class: "plain stacked" },
        h("thead", {}, h("tr", {}, ["Case", first.key, last.key, "", "Variants"].map((one) => one ? h("th", { scope: "col" }, one) : h("td", {})))),
        h("tbody", {}, some.map((one) => h("tr", {},
          h("td", {}, h("a", { href: thaw.casePage(one.kase) }, one.kase.name), h("p", { class: "muted" }, one.kase.recipe)),
          h("td", {}, thaw.chip(one.x)), h("td", {}, thaw.chip(one.y)), h("td", {}, WAYS[one.way]),
          h("td", {}, h("details", {}, h("summary", {}, thaw.many(one.places.length, "variant")),
            h("p", { class: "params" }, one.places.map((at) => data.variants[one.kase.variants[at]].id).join(", ")))))))))
        : h("p", {}, form.only.value ? `No verdict is ${form.only.value}.` : "No verdict differs."));
  }

  function changed() {
    thaw.keep({ a: form.a.value, b: form.b.value, only: form.only.value, stage: form.stage.value });
    show();
  }

  form.addEventListener("input", changed);
  form.addEventListener("submit", (event) => event.preventDefault());
  document.getElementById("swap").addEventListener("click", () => { [form.a.value, form.b.value] = [form.b.value, form.a.value]; changed(); });
  window.addEventListener("hashchange", show);
  show();
  document.documentElement.dataset.ready = "1";
})();
