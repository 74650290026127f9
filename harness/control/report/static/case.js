// The page of a case: each thing that it was seen to do, and on which stacks.
"use strict";
(() => {
  const { h, data } = thaw;
  const into = document.getElementById("out"), kase = data.cases.find((one) => one.slug === document.documentElement.dataset.case);

  // Stacks of one group that follow one another, as a range.
  function ranges(stacks) {
    const parts = [];
    data.groups.forEach((title, group) => {
      const every = data.stacks.filter((one) => one.group === group);
      const texts = [];
      for (let at = 0; at < every.length; at++) {
        if (!stacks.has(every[at])) continue;
        let end = at;
        while (end + 1 < every.length && stacks.has(every[end + 1])) end++;
        const link = (one) => h("a", { href: thaw.stackPage(one) }, one.label);
        texts.push([texts.length ? ", " : "", link(every[at]), end > at ? [" to ", link(every[end])] : ""]);
        at = end;
      }
      if (texts.length) parts.push([h("dt", {}, title), h("dd", {}, texts)]);
    });
    return parts;
  }

  thaw.load(kase).then((plain) => {
    const alike = new Map();
    for (const stack of data.stacks) {
      const found = thaw.cell(kase, stack);
      if (found.worst < 0 || stack.unsolvable) continue;
      const at = plain.of[stack.place];
      alike.set(at, [...(alike.get(at) || []), stack]);
    }
    const ordered = [...alike.values()].sort((x, y) => y.length - x.length);
    into.replaceChildren(...ordered.map((stacks) => h("details", { class: "outcome" },
      h("summary", {}, thaw.chips(thaw.cell(kase, stacks[0])), h("span", { class: "muted" }, thaw.many(stacks.length, "stack"))),
      h("dl", { class: "facts long" }, ranges(new Set(stacks))),
      ...thaw.story(kase, stacks[0], plain),
      h("pre", { class: "wrap" }, thaw.command(kase, stacks[0])))));
    if (into.firstChild) into.firstChild.open = true; else into.append(h("p", {}, "Measured nowhere yet."));
    document.documentElement.dataset.ready = "1";
  }, (error) => into.replaceChildren(h("p", {}, `${error.message}: the folder of this page is not whole.`)));
})();
