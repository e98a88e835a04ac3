"use strict";
// The tree of the target's modules: a node's children are drawn when it is opened. Numbered children that look
// alike (the layers of a model) are drawn as one row until it is opened.
(() => {
  // A text whose numbers follow those of the path: a piece is text, or [which number, what to add].
  const written = (text, numbers) =>
    Array.isArray(text)
      ? text.map((p) => (Array.isArray(p) ? String(numbers[p[0]] + p[1]) : p)).join("")
      : text;

  // A run of layers is one node in the data; here it is a node for each.
  const unfolded = (node, name, numbers) => {
    const own = { ...node, n: name };
    if (Array.isArray(node.s)) own.s = node.s.map((key) => written(key, numbers));
    if (node.d) own.d = written(node.d, numbers);
    if (node.c) own.c = node.c.flatMap((child) => members(child, numbers));
    return own;
  };

  const members = (node, numbers) => {
    if (!Array.isArray(node.n)) return [unfolded(node, node.n, numbers)];
    const found = [];
    for (let k = node.n[0]; k <= node.n[1]; k++) found.push(unfolded(node, String(k), [...numbers, k]));
    return found;
  };

  const root = unfolded(JSON.parse(document.getElementById("data").textContent), "", []);
  const tree = document.getElementById("tree");
  const words = document.getElementById("words");
  const category = document.getElementById("category");
  const wrong = document.getElementById("wrong");
  const shown = document.getElementById("shown");
  const LOADED = new Set(["matched", "renamed", "dtype-mismatch", "values-differ"]);
  const open = new Set();
  const MOST = 4000;
  let drawn = 0;

  const element = (tag, className, text) => {
    const made = document.createElement(tag);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  };

  const sources = (leaf, path) => (leaf.s === 1 ? [path] : leaf.s || []);

  const wanted = (leaf, path) =>
    (!category.value || leaf.f === category.value) &&
    (!wrong.checked || !LOADED.has(leaf.f)) &&
    (!words.value || (path + " " + sources(leaf, path).join(" ")).toLowerCase().includes(words.value.toLowerCase()));

  const filtering = () => Boolean(category.value || wrong.checked || words.value);

  const below = (path, name) => (path ? path + "." + name : name);

  // How many leaves below a node pass the filter. A node may be a tensor and a module at once.
  const passing = (node, path) => {
    let count = node.f && wanted(node, path) ? 1 : 0;
    for (const child of node.c || []) count += passing(child, below(path, child.n));
    return count;
  };

  const likeness = (node) =>
    [node.k, node.l, node.x, node.w, JSON.stringify(node.g), (node.c || []).map((c) => c.n).join()].join("|");

  // The children that pass the filter; numbers in a row that look alike together.
  const rows = (node, path) => {
    const found = [];
    for (const child of node.c || []) {
      if (filtering() && !passing(child, below(path, child.n))) continue;
      const last = found[found.length - 1];
      const numbered = /^\d+$/.test(child.n) && child.c;
      const next = last && last.numbered && numbered && Number(child.n) === Number(last.nodes[last.nodes.length - 1].n) + 1;
      if (next && likeness(last.nodes[0]) === likeness(child)) last.nodes.push(child);
      else found.push({ nodes: [child], numbered });
    }
    return found;
  };

  const span = (nodes) => "{" + nodes[0].n + ".." + nodes[nodes.length - 1].n + "}";

  const twist = (path, isOpen) => {
    const button = element("button", "twist", isOpen ? "\u25be" : "\u25b8");
    button.type = "button";
    button.setAttribute("aria-expanded", String(isOpen));
    button.addEventListener("click", () => {
      if (open.has(path)) open.delete(path);
      else open.add(path);
      draw();
    });
    return button;
  };

  const line = (depth, className) => {
    const row = element("div", "row columns " + className);
    row.setAttribute("role", "treeitem");
    const name = element("span", "name");
    name.style.paddingLeft = depth * 1.1 + "rem";
    row.append(name, element("span", "loaded"), element("span", "source"));
    tree.append(row);
    drawn += 1;
    return row;
  };

  const gauge = (cell, loaded, keys, share) => {
    const bar = element("span", "bar");
    const fill = element("span");
    fill.style.width = 100 * share + "%";
    bar.append(fill);
    cell.append(bar, document.createTextNode(loaded + "/" + keys));
  };

  const drawLeaf = (node, path, depth) => {
    const loaded = LOADED.has(node.f);
    const row = line(depth, (loaded && node.v === "allow" ? "ok" : node.v + " gone") + (node.p ? "" : " extra"));
    const [name, state, source] = row.children;
    name.append(element("span", "twist"));
    if (node.p) name.append(element("b", "", node.n), element("span", "spec", node.t));
    else name.append(element("span", "why", "\u2014"));
    const said = element("span", "said", node.f);
    said.dataset.c = node.f;
    state.append(said);
    const from = sources(node, path).map((key) => (key === path && node.p ? "same" : key)).join(" + ");
    if (from) source.append(element(node.p ? "span" : "b", node.p ? "why" : "", from));
    if (node.d) source.append(element("span", "why", (from ? " \u00b7 " : "") + node.d));
  };

  const drawModule = (nodes, path, name, depth) => {
    const isOpen = open.has(path);
    const node = nodes[0];
    const total = (field) => nodes.reduce((sum, n) => sum + (n[field] || 0), 0);
    const keys = total("k"), loaded = total("l"), elements = total("e"), extra = total("x");
    const row = line(depth, node.w || (keys && loaded === keys ? "ok" : "allow gone"));
    const [label, state, source] = row.children;
    label.append(twist(path, isOpen), element("b", "", name));
    if (keys) gauge(state, loaded, keys, elements ? total("m") / elements : loaded / keys);
    if (extra) source.append(element("b", "", extra + " only in the source"));
    return isOpen;
  };

  const walk = (node, path, depth) => {
    for (const { nodes } of rows(node, path)) {
      if (drawn >= MOST) return;
      const first = nodes[0];
      const place = below(path, first.n);
      if (first.f && (!filtering() || wanted(first, place))) drawLeaf(first, place, depth);
      if (!first.c) continue;
      if (nodes.length === 1) {
        if (drawModule(nodes, place, first.n, depth)) walk(first, place, depth + 1);
        continue;
      }
      if (!drawModule(nodes, below(path, span(nodes)), span(nodes), depth)) continue;
      for (const one of nodes) {
        const here = below(path, one.n);
        if (drawModule([one], here, one.n, depth + 1)) walk(one, here, depth + 2);
      }
    }
  };

  const draw = () => {
    tree.replaceChildren();
    drawn = 0;
    walk(root, "", 0);
    const leaves = passing(root, "");
    shown.textContent = leaves.toLocaleString() + (leaves === 1 ? " tensor" : " tensors") +
      (drawn >= MOST ? "; the first " + MOST + " rows are drawn" : "");
  };

  const openAll = (node, path) => {
    for (const { nodes } of rows(node, path)) {
      for (const one of nodes) {
        if (!one.c) continue;
        open.add(below(path, one.n));
        openAll(one, below(path, one.n));
      }
      if (nodes.length > 1) open.add(below(path, span(nodes)));
    }
  };

  // At first: open what has something wrong in it, down to the modules, but no run of alike layers.
  const openWrong = (node, path, depth) => {
    if (depth > 6) return;
    for (const { nodes } of rows(node, path)) {
      const one = nodes[0];
      const at = below(path, one.n);
      if (nodes.length > 1 || !one.c || !(one.w || one.l !== one.k)) continue;
      open.add(at);
      openWrong(one, at, depth + 1);
    }
  };

  const refresh = () => {
    if (filtering()) { open.clear(); openAll(root, ""); }
    draw();
  };
  words.addEventListener("input", refresh);
  category.addEventListener("change", refresh);
  wrong.addEventListener("change", refresh);
  document.getElementById("open").addEventListener("click", () => { openAll(root, ""); draw(); });
  document.getElementById("close").addEventListener("click", () => { open.clear(); draw(); });
  openWrong(root, "", 0);
  draw();
})();
