// What every page shares: the data as it is read, and helpers that only ever make text, never markup, of it.
"use strict";
const thaw = (() => {
  const A = "A".charCodeAt(0), a = "a".charCodeAt(0);
  const waiting = new Map();
  const details = new Map();
  let data = null;

  function runs(text) {
    const found = [];
    for (const part of text ? text.split(",") : []) {
      const [number, count] = part.split("*").map(Number);
      for (let left = count || 1; left; left--) found.push(number);
    }
    return found;
  }

  function grid(plain) {
    data = plain;
    data.verdicts = plain.verdicts.map(([name, symbol, family, means]) => ({ name, symbol, family, means }));
    data.kinds = plain.kinds.map(([name, title]) => ({ name, title }));
    data.variants = plain.variants.map(([id, model, stage]) => ({ id, model, stage }));
    data.packages = plain.packages.map(([name, versions]) => ({ name, versions }));
    data.stacks = plain.stacks.map(([key, label, group, device, measured, versions, stack, description, unsolvable, known], place) =>
      ({ key, label, group, device, measured, versions, stack, description, unsolvable, known, place }));
    data.cases = plain.cases.map(([name, slug, kind, recipe, happens, instead, cure, drivers, variants, known, patterns, of], place) =>
      ({ name, slug, kind, recipe, happens, instead, cure, drivers, variants, known, place, patterns: patterns.map(read), of: Uint16Array.from(runs(of)) }));
    data.caseOf = new Map(data.cases.map((one) => [one.name, one]));
    data.stackOf = new Map(data.stacks.map((one) => [one.key, one]));
    data.trains = data.verdicts.findIndex((one) => one.name === "TRAINS");
    data.unsolvable = data.verdicts.findIndex((one) => one.name === "UNSOLVABLE");
    data.notRun = data.verdicts.findIndex((one) => one.name === "NOT_RUN");
  }

  // A pattern: for each variant the place of its verdict, -1 where there is none; and whether it is a surprise.
  function read(text) {
    const verdicts = [], odd = [];
    for (let at = 0; at < text.length; at++) {
      const code = text.charCodeAt(at);
      verdicts.push(code >= a ? code - a : code >= A ? code - A : -1);
      odd.push(code >= a);
    }
    return { verdicts, odd };
  }

  // What the chosen variants of a pattern come to.
  function sum(pattern, chosen) {
    const counts = new Map();
    let worst = -1, total = 0, odd = 0, mask = 0;
    for (const at of chosen) {
      const verdict = pattern.verdicts[at];
      if (verdict < 0) continue;
      counts.set(verdict, (counts.get(verdict) || 0) + 1);
      mask |= 1 << verdict;
      total++;
      if (pattern.odd[at]) odd++;
      if (worst < 0 || verdict < worst) worst = verdict;
    }
    return { worst, total, odd, mask, counts: [...counts].sort((x, y) => x[0] - y[0]) };
  }

  function cell(kase, stack, chosen) {
    if (stack.unsolvable) return { worst: data.unsolvable, total: 0, odd: 0, mask: 1 << data.unsolvable, counts: [] };
    return sum(kase.patterns[kase.of[stack.place]], chosen || kase.variants.keys());
  }

  function told(found) {
    if (found.worst < 0) return "not measured";
    if (!found.counts.length) return data.verdicts[found.worst].name;
    if (found.counts.length === 1) return `${data.verdicts[found.worst].name}, ${many(found.total, "variant")}`;
    return found.counts.map(([verdict, count]) => `${count} ${data.verdicts[verdict].name}`).join(", ") + ` of ${found.total} variants`;
  }

  // Stories mark code by backticks.
  function rich(text) {
    return text.split(/`([^`]*)`/).map((part, at) => at % 2 ? h("code", {}, part) : part);
  }

  function many(count, thing) {
    return `${count.toLocaleString("en")} ${thing}${count === 1 ? "" : "s"}`;
  }

  function h(tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === false || value === null || value === undefined) continue;
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else made.setAttribute(name, value === true ? "" : value);
    }
    made.append(...children.flat(3).filter((one) => one !== null && one !== undefined && one !== false));
    return made;
  }

  function chip(verdict, count) {
    const look = data.verdicts[verdict];
    return h("span", { class: `chip f-${look.family}` }, `${look.symbol} ${look.name}`, count ? [" ", h("span", { class: "n" }, `${count}`)] : null);
  }

  function chips(found) {
    return found.counts.map(([verdict, count]) => [chip(verdict, found.counts.length > 1 ? `${count} of ${found.total}` : ""), " "]);
  }

  function root() {
    return document.documentElement.dataset.root;
  }

  const casePage = (kase) => `${root()}case/${encodeURIComponent(kase.slug)}.html`;
  const stackPage = (stack) => `${root()}stack.html#${new URLSearchParams({ stack: stack.key })}`;

  // Short facts, side by side.
  function tiles(facts) {
    return h("dl", { class: "tiles" }, facts.filter(([, value]) => value).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
  }

  // As a link it would be the address, which is what the page shows.
  document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); document.getElementById("main").focus(); });

  function versionsOf(stack) {
    return data.packages.map(({ name, versions }, at) => [name, stack.versions[at] < 0 ? "" : versions[stack.versions[at]]]);
  }

  // The state of a page is its address, so that every view can be linked to.
  function state() {
    return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  }

  function keep(values, push) {
    const some = Object.entries(values).filter(([, value]) => value !== "" && value !== undefined && value !== null);
    const hash = "#" + new URLSearchParams(some);
    if (hash === location.hash || (hash === "#" && !location.hash)) return;
    history[push ? "pushState" : "replaceState"](null, "", hash === "#" ? location.pathname + location.search : hash);
  }

  // The details of a case come as a script: a page opened from disk may load nothing else.
  function load(kase) {
    if (details.has(kase.slug)) return Promise.resolve(details.get(kase.slug));
    return new Promise((resolve, reject) => {
      const script = h("script", { src: `${root()}data/case/${encodeURIComponent(kase.slug)}.js` });
      waiting.set(kase.slug, resolve);
      script.addEventListener("error", () => { script.remove(); reject(new Error(`data/case/${kase.slug}.js cannot be loaded`)); });
      document.head.append(script);
    });
  }

  function detail({ slug }, plain) {
    plain.of = runs(plain.runs);
    details.set(slug, plain);
    if (waiting.has(slug)) waiting.get(slug)(plain);
  }

  // What one case did on one stack: an element for each way its variants went.
  function story(kase, stack, plain) {
    if (stack.unsolvable) return [h("p", {}, chip(data.unsolvable)), h("p", {}, stack.unsolvable)];
    const pattern = plain.patterns[plain.of[stack.place]];
    const alike = new Map();
    pattern.forEach((outcome, at) => { if (outcome >= 0) alike.set(outcome, [...(alike.get(outcome) || []), at]); });
    const ordered = [...alike].sort((x, y) => plain.outcomes[x[0]].v - plain.outcomes[y[0]].v);
    if (!ordered.length) return [h("p", {}, "Not measured on this stack.")];
    return ordered.map(([number, places]) => {
      const outcome = plain.outcomes[number];
      const odd = [...new Set(plain.surprises.filter(([col, at]) => col === stack.place && places.includes(at)).map((one) => one[2]))];
      const extras = plain.extras.filter(([col, at]) => col === stack.place && places.includes(at));
      return h("section", { class: "outcome" },
        h("p", {}, chip(outcome.v), " ", h("span", { class: "muted" }, `${data.verdicts[outcome.v].means}; ${many(outcome.w, "rank")}`)),
        odd.map((one) => h("p", { class: "odd-note" }, `Not as expected: ${one}`)),
        outcome.f && [h("p", {}, h("code", {}, outcome.f[1]), " on the way to ", h("code", {}, outcome.f[0])), h("pre", { class: "wrap" }, outcome.f[2])],
        outcome.p && h("dl", { class: "facts long" }, outcome.p.map(([verdict, names]) => [
          h("dt", {}, verdict), h("dd", { class: "params" }, names.join(", "))])),
        outcome.p && h("p", { class: "muted" }, "Every other parameter did what it was meant to."),
        h("p", { class: "variants" }, `${places.length} of ${kase.variants.length}: ` + places.map((at) => data.variants[kase.variants[at]].id).join(", ")),
        extras.map(([, at, more]) => h("details", {},
          h("summary", {}, `More of ${data.variants[kase.variants[at]].id}`),
          more.headline && h("p", {}, more.headline),
          (more.parted || []).map((one) => h("p", { class: "params" }, one)),
          (more.notes || []).map((one) => h("p", {}, `Note: ${one}`)),
          more.stacks.map(([rank, text]) => [h("p", {}, `Stack of rank ${rank}:`), h("pre", {}, text)]))));
    });
  }

  // For the shell, whatever the name is.
  const quoted = (text) => /^[\w.@-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;

  function command(kase, stack) {
    if (!kase.known) return `pytest -k ${quoted(kase.name)}`;
    return stack.known ? `tox run -e ${quoted(stack.stack)} -- -- -k ${quoted(kase.name)}` : `thawcheck run ${quoted(kase.name)}`;
  }

  function reports(refs) {
    return refs.map((one, at) => {
      const found = /^([\w.-]+\/[\w.-]+)#(\d+)$/.exec(one);
      const link = found ? h("a", { href: `https://github.com/${found[1]}/issues/${found[2]}`, rel: "noreferrer" }, one) : one;
      return [at ? ", " : "", link];
    });
  }

  // "0.14.0rc1" before "0.14.0" before "0.14.0.post1".
  function parts(version) {
    const found = /^v?(\d+(?:\.\d+)*)(?:[._-]?(a|b|rc|dev|post)\.?(\d*))?/i.exec(version.trim());
    if (!found) return null;
    const order = { dev: -4, a: -3, b: -2, rc: -1, post: 1 };
    return { numbers: found[1].split(".").map(Number), tail: found[2] ? order[found[2].toLowerCase()] : 0, at: Number(found[3] || 0) };
  }

  function compareVersions(x, y) {
    const one = parts(x), other = parts(y);
    if (!one || !other) return one ? 1 : other ? -1 : 0;
    for (let at = 0; at < Math.max(one.numbers.length, other.numbers.length); at++) {
      const by = (one.numbers[at] || 0) - (other.numbers[at] || 0);
      if (by) return by;
    }
    return one.tail - other.tail || one.at - other.at;
  }

  // A list of cases by the worst that they do: what bites, then what fails to run, then the rest.
  function bites(results, withStack) {
    const bad = results.filter((one) => one.found.worst >= 0 && ![data.trains, data.notRun].includes(one.found.worst));
    const missing = results.filter((one) => one.found.worst === data.notRun);
    const fine = results.filter((one) => one.found.worst === data.trains);
    const none = results.filter((one) => one.found.worst < 0);
    bad.sort((x, y) => x.found.worst - y.found.worst || x.kase.kind - y.kase.kind || x.kase.place - y.kase.place);
    const plainList = (title, some) => some.length ? h("details", {}, h("summary", {}, `${title} (${some.length})`),
      h("ul", { class: "cols" }, some.map(({ kase }) => h("li", {}, h("a", { href: casePage(kase) }, kase.name))))) : null;
    const kinds = (kase) => data.kinds[kase.kind].name;
    return [
      h("h2", {}, bad.length ? `What bites (${bad.length})` : "Nothing that was measured bites"),
      bad.length ? h("div", { class: "tablewrap" }, h("table", { class: "plain stacked bites" },
        h("thead", {}, h("tr", {}, ["Verdict", "Case", "Kind", withStack ? "Measured on" : null].filter(Boolean).map((one) => h("th", { scope: "col" }, one)))),
        h("tbody", {}, bad.map(({ kase, found, stack }) => h("tr", {},
          h("td", {}, chips(found), found.odd ? h("p", { class: "odd-note" }, "not as expected") : null),
          h("td", {}, h("a", { href: casePage(kase) }, kase.recipe), h("p", {}, h("span", { class: "mono muted" }, kase.name)),
            kase.happens ? h("p", { class: "muted" }, rich(kase.happens)) : null, kase.instead ? h("p", {}, h("strong", {}, "Instead: "), rich(kase.instead)) : null),
          h("td", {}, h("a", { href: `${root()}kind/${kinds(kase).toLowerCase()}.html`, title: data.kinds[kase.kind].title }, kinds(kase))),
          withStack ? h("td", {}, h("a", { href: stackPage(stack) }, stack.key)) : null))))) : null,
      plainList("Trains as it should", fine), plainList("Could not run there, e.g. since a library is missing", missing), plainList("Not measured there yet", none),
    ];
  }

  const stageOf = (kase, stage) => stage === "" ? [...kase.variants.keys()] :
    [...kase.variants.keys()].filter((at) => data.variants[kase.variants[at]].stage === Number(stage));

  return { grid, detail, h, rich, chip, chips, cell, sum, told, many, state, keep, load, story, command, reports, casePage, stackPage, versionsOf,
    compareVersions, bites, tiles, stageOf, runs, get data() { return data; } };
})();
