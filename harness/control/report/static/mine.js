// What bites on somebody's own versions: for each case, the measured stack that is nearest to them.
"use strict";
(() => {
  const { h, data } = thaw;
  const form = document.getElementById("versions"), into = document.getElementById("out"), fields = document.getElementById("fields");
  const NAMES = data.packages.map((one) => one.name).filter((one) => one !== "pytest");

  for (const name of NAMES) {
    const list = h("datalist", { id: `known-${name}` }, data.packages.find((one) => one.name === name).versions.map((one) => h("option", { value: one })));
    fields.append(h("div", { class: "field" }, h("label", { for: `v-${name}` }, name),
      h("input", { id: `v-${name}`, name, list: list.id, size: 10, autocomplete: "off", spellcheck: "false", inputmode: "decimal", placeholder: "any" }), list));
  }

  // Of Python the minor release alone, as patches change nothing.
  const plain = (name, version) => {
    const text = version.trim().replace(/^[=v\s]+/, "").split("+")[0];
    return name === "python" ? text.split(".").slice(0, 2).join(".") : text;
  };

  function given() {
    return NAMES.map((name) => [name, plain(name, form.elements[name].value)]).filter(([, version]) => version);
  }

  // First in how many packages they differ, then how many observed versions lie between.
  function distance(stack, wanted) {
    let differing = 0, steps = 0;
    const apart = [];
    for (const [name, version] of wanted) {
      const at = data.packages.findIndex((one) => one.name === name), order = data.packages[at].versions;
      const has = stack.versions[at] < 0 ? "" : order[stack.versions[at]];
      if (has && thaw.compareVersions(plain(name, has), version) === 0) continue;
      differing++;
      apart.push(`${name} ${has || "absent"}, yours ${version}`);
      if (!has) { steps += order.length; continue; }
      const [low, high] = [has, version].sort(thaw.compareVersions);
      steps += order.filter((one) => thaw.compareVersions(low, one) <= 0 && thaw.compareVersions(one, high) < 0).length;
    }
    return { stack, differing, steps, apart };
  }

  function show() {
    const state = thaw.state();
    for (const name of NAMES) form.elements[name].value = state[name] || "";
    form.stage.value = ["0", "1", "2", "3"].includes(state.stage) ? state.stage : "";
    answer();
  }

  function answer() {
    const wanted = given();
    const wrong = wanted.filter(([, version]) => !/^\d+(\.\d+)*([._-]?(a|b|rc|dev|post)\.?\d*)*$/i.test(version));
    if (wrong.length) { into.replaceChildren(h("p", { role: "alert" }, `Not a version: ${wrong.map(([name, version]) => `${name} ${version}`).join(", ")}. Type it as in 0.16.9.`)); return; }
    if (!wanted.length) { into.replaceChildren(h("p", { class: "muted" }, "Type at least one version, or paste what pip freeze prints.")); return; }
    // A stack that cannot be installed has no versions to be near to.
    // Of equally near ones the newest measurement.
    const near = data.stacks.filter((one) => !one.unsolvable).map((stack) => distance(stack, wanted))
      .sort((x, y) => x.differing - y.differing || x.steps - y.steps || y.stack.measured.localeCompare(x.stack.measured) || x.stack.place - y.stack.place);
    if (!near.length) { into.replaceChildren(h("p", {}, "Nothing was measured.")); return; }
    const results = data.cases.map((kase) => {
      const places = thaw.stageOf(kase, form.stage.value);
      const one = near.find(({ stack }) => thaw.cell(kase, stack, places).worst >= 0) || near[0];
      return { kase, stack: one.stack, found: thaw.cell(kase, one.stack, places) };
    }).filter((one) => thaw.stageOf(one.kase, form.stage.value).length);
    const first = near[0], same = near.filter((one) => !one.differing).length;
    into.replaceChildren(
      h("p", {}, same ? h("strong", {}, `${thaw.many(same, "stack")} with just these versions ${same === 1 ? "was" : "were"} measured. `) : h("strong", {}, "Just these were not measured. "),
        same ? "" : ["The nearest is ", h("a", { href: thaw.stackPage(first.stack) }, first.stack.key), `: ${first.apart.join("; ")}. `],
        "Each line below is from the nearest stack on which that case was measured, so read it as a strong hint, and run the case to be sure."),
      ...thaw.bites(results, true).filter(Boolean));
  }

  function changed() {
    thaw.keep({ ...Object.fromEntries(given()), stage: form.stage.value });
    answer();
  }

  fields.addEventListener("change", changed);
  form.stage.addEventListener("change", changed);
  form.addEventListener("submit", (event) => { event.preventDefault(); changed(); into.focus(); });
  document.getElementById("paste").addEventListener("input", (event) => {
    for (const line of event.target.value.split("\n")) {
      const found = /^\s*([A-Za-z0-9._-]+)\s*(?:==|\s)\s*v?([0-9][^\s;#]*)/.exec(line);
      const name = found?.[1].toLowerCase().replace(/[._]/g, "-");
      if (found && NAMES.includes(name)) form.elements[name].value = found[2].split("+")[0];
    }
    changed();
  });
  window.addEventListener("hashchange", show);
  show();
  document.documentElement.dataset.ready = "1";
})();
