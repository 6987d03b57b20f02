// Both call trees. A node is made when its parent is unfolded, so that thousands of calls cost nothing until looked at.
"use strict";
{
  const { make } = tfdebug;
  const signs = { agrees: "●", differs: "▲", unpaired: "○", "not compared": "·" };

  // Columns back to calls.
  tfdebug.calls = (columns) => columns.index.map((index, at) => {
    const path = columns.path_words[columns.path[at]], call = columns.call[at];
    return {
      index, path, call, name: call ? `${path}#${call}` : path, class: columns.class_name_words[columns.class_name[at]], parent: columns.parent[at], ended: columns.ended[at],
      state: columns.state_words[columns.state[at]], share: tfdebug.number(columns.share[at]), maxAbs: tfdebug.number(columns.max_abs[at]),
      allowed: tfdebug.number(columns.allowed[at]), l2: tfdebug.number(columns.relative_l2[at]), shape: columns.shape_words[columns.shape[at]], children: [],
    };
  });

  // A fold stands for layers side by side that are alike and have nothing to show.
  function folded(calls) {
    const found = [];
    for (const call of calls) {
      const last = found.at(-1), isAlike = last && /\.\d+$/.test(call.path) && call.calm && last[0].calm && last[0].class === call.class && last[0].children.length === call.children.length;
      if (isAlike) last.push(call); else found.push([call]);
    }
    return found.flatMap((group) => (group.length > 2 ? [{ fold: group, children: group, path: "", calm: true }] : group));
  }

  tfdebug.Tree = class Tree {
    constructor(root, calls, tag, culprit, choose) {
      Object.assign(this, { root, calls, tag, culprit, choose, onlyTelling: false, items: new Map(), chosen: null });
      this.byIndex = new Map(calls.map((call) => [call.index, call]));
      this.tops = calls.filter((call) => call.parent === null || !this.byIndex.has(call.parent));
      for (const call of calls) this.byIndex.get(call.parent)?.children.push(call);
      for (const call of [...calls].reverse()) {
        call.calm = call.state !== "differs" && (call.state !== "unpaired") && call.index !== culprit && call.children.every((child) => child.calm);
      }
      root.addEventListener("keydown", (event) => this.key(event));
      root.addEventListener("click", (event) => this.click(event));
      this.draw();
    }

    draw() {
      this.items.clear();
      this.root.replaceChildren(...this.nodes(this.tops, 1));
      this.root.firstElementChild?.setAttribute("tabindex", "0");
    }

    nodes(calls, level) {
      const kept = this.onlyTelling ? calls.filter((call) => !call.calm) : calls;
      return (this.onlyTelling ? kept : folded(kept)).map((call) => this.node(call, level));
    }

    node(call, level) {
      const above = this.byIndex.get(call.parent), inside = this.onlyTelling ? call.children.filter((child) => !child.calm) : call.children;
      const item = make("li", { role: "treeitem", "aria-level": level, tabindex: "-1", "aria-expanded": inside.length ? "false" : null, class: call.index === this.culprit && this.culprit !== null ? "is-culprit" : null });
      item.call = call;
      item.append(call.fold ? this.foldRow(call) : this.row(call, above, inside.length));
      if (!call.fold) this.items.set(call.index, item);
      if (inside.length && !call.fold && (level === 1 || (this.calls.length < 200 && !call.calm))) this.unfold(item);
      return item;
    }

    foldRow(call) {
      const [first, last] = [call.fold[0], call.fold.at(-1)];
      return make("div", { class: "row" }, make("span", { class: "twist", "aria-hidden": "true" }, "▸"), make("span", { class: "agrees", "aria-hidden": "true" }, "●"),
        make("span", {}, `${first.path.split(".").pop()} … ${last.path.split(".").pop()}`), make("span", { class: "muted" }, `${call.fold.length} × ${first.class}, alike`));
    }

    row(call, above, hasChildren) {
      const name = above && call.path.startsWith(`${above.path}.`) ? call.path.slice(above.path.length + 1) : call.path;
      const tag = this.tag(call);
      const row = make("div", { class: "row", title: `${call.name} (${call.class}): ${call.state}` }, make("span", { class: "twist", "aria-hidden": "true" }, hasChildren ? "▸" : ""),
        make("span", { class: call.state.replace(" ", "-"), "aria-hidden": "true" }, signs[call.state]), make("span", {}, name + (call.call ? `#${call.call}` : "")), make("span", { class: "muted" }, call.class), make("span", { class: "unseen" }, call.state));
      if (tag) row.append(make("span", { class: "tag" }, tag));
      if (call.share) row.append(make("span", { class: "far" }, `${tfdebug.shown(call.share)}×`));
      return row;
    }

    unfold(item) {
      if (item.getAttribute("aria-expanded") !== "false") return;
      const { call } = item, level = Number(item.getAttribute("aria-level")) + 1;
      item.setAttribute("aria-expanded", "true");
      item.querySelector(".twist").textContent = "▾";
      if (!item.querySelector(":scope > ul")) item.append(make("ul", { role: "group" }, ...(call.fold ? call.fold.map((each) => this.node(each, level)) : this.nodes(call.children, level))));
      item.querySelector(":scope > ul").hidden = false;
    }

    fold(item) {
      if (item.getAttribute("aria-expanded") !== "true") return;
      item.setAttribute("aria-expanded", "false");
      item.querySelector(".twist").textContent = "▸";
      item.querySelector(":scope > ul").hidden = true;
    }

    unfoldAll() {
      for (const item of this.root.querySelectorAll('[aria-expanded="false"]')) this.unfold(item);
      if (this.root.querySelector('[aria-expanded="false"]')) this.unfoldAll();
    }

    foldAll() { for (const item of this.root.querySelectorAll('[aria-expanded="true"]')) this.fold(item); }

    // Unfolds the way to a call, marks it, and gives it the focus where that is asked for.
    show(index, takesFocus) {
      this.chosen?.classList.remove("is-chosen");
      this.chosen = null;
      if (index === null || !this.byIndex.has(index)) return false;
      const way = [];
      for (let call = this.byIndex.get(index); call; call = this.byIndex.get(call.parent)) way.unshift(call);
      for (const call of way) {
        if (!this.items.has(call.index)) {
          const fold = [...this.root.querySelectorAll('[role="treeitem"]')].find((item) => item.call.fold?.includes(call));
          if (!fold) return false;
          this.unfold(fold);
        }
        for (let item = this.items.get(call.index).parentElement?.closest('[role="treeitem"]'); item; item = item.parentElement.closest('[role="treeitem"]')) this.unfold(item);
        if (call.index !== index) this.unfold(this.items.get(call.index));
      }
      const item = (this.chosen = this.items.get(index)), row = item.firstElementChild;
      item.classList.add("is-chosen");
      if (takesFocus) this.focus(item);
      this.root.scrollTop += row.getBoundingClientRect().top - this.root.getBoundingClientRect().top - this.root.clientHeight / 3;
      return true;
    }

    focus(item) {
      this.root.querySelector('[tabindex="0"]')?.setAttribute("tabindex", "-1");
      item.setAttribute("tabindex", "0");
      item.focus({ preventScroll: true });
      item.firstElementChild.scrollIntoView({ block: "nearest" });
    }

    click(event) {
      const item = event.target.closest('[role="treeitem"]');
      if (!item) return;
      if (event.target.closest(".twist") || item.call.fold) item.getAttribute("aria-expanded") === "true" ? this.fold(item) : this.unfold(item);
      this.focus(item);
      if (!item.call.fold) this.choose(item.call);
    }

    key(event) {
      const item = event.target.closest('[role="treeitem"]');
      if (!item) return;
      const visible = [...this.root.querySelectorAll('[role="treeitem"]')].filter((each) => each.offsetParent), at = visible.indexOf(item);
      const isOpen = item.getAttribute("aria-expanded") === "true", go = (other) => other && this.focus(other);
      const acts = {
        ArrowDown: () => go(visible[at + 1]), ArrowUp: () => go(visible[at - 1]), Home: () => go(visible[0]), End: () => go(visible.at(-1)),
        ArrowRight: () => (isOpen ? go(visible[at + 1]) : this.unfold(item)),
        ArrowLeft: () => (isOpen ? this.fold(item) : go(item.parentElement.closest('[role="treeitem"]'))),
        Enter: () => (item.call.fold ? (isOpen ? this.fold(item) : this.unfold(item)) : this.choose(item.call)),
      };
      acts[" "] = acts.Enter;
      if (!acts[event.key]) return;
      event.preventDefault();
      acts[event.key]();
    }
  };
}
