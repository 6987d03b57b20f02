// What every page has: light and dark, links into an editor, buttons that copy.
"use strict";
const tfdebug = {
  stored(key, value) {
    try { return value === undefined ? localStorage.getItem(key) : localStorage.setItem(key, value); } catch { return null; }
  },
  data: () => JSON.parse(document.getElementById("data").textContent),
  // JSON has no inf and nan: they come as text.
  number: (value) => (value === null ? null : value === "inf" ? Infinity : value === "-inf" ? -Infinity : Number(value)),
  colour: (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim(),
  make(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) if (value !== null && value !== false) made.setAttribute(name, value);
    made.append(...children);
    return made;
  },
  say(text) { document.getElementById("said").textContent = text; },
  editors: {
    vscode: (file, line) => `vscode://file/${encodeURI(file)}:${line}`,
    cursor: (file, line) => `cursor://file/${encodeURI(file)}:${line}`,
    zed: (file, line) => `zed://file/${encodeURI(file)}:${line}`,
    pycharm: (file, line) => `pycharm://open?file=${encodeURIComponent(file.includes(":") ? file : `/${file}`)}&line=${line}`,
    idea: (file, line) => `idea://open?file=${encodeURIComponent(file.includes(":") ? file : `/${file}`)}&line=${line}`,
  },
  linkPlaces(within = document) {
    const link = tfdebug.editors[document.getElementById("editor").value];
    for (const place of within.querySelectorAll("a[data-file]")) {
      const file = place.dataset.file.replaceAll("\\", "/");
      if (/^(\/|[A-Za-z]:\/)/.test(file)) place.href = link(file.replace(/^\//, ""), place.dataset.line);
      else place.removeAttribute("href"); // its place on this machine is unknown
    }
  },
  onTheme: [],
};
document.documentElement.dataset.theme = tfdebug.stored("tfdebug-theme") || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");

async function copy(button) {
  const text = button.dataset.copy, label = button.textContent;
  try { await navigator.clipboard.writeText(text); } catch {
    const field = tfdebug.make("textarea", { class: "unseen" });
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  button.textContent = "Copied";
  button.classList.add("done");
  tfdebug.say("Copied");
  setTimeout(() => { button.textContent = label; button.classList.remove("done"); }, 1200);
}

document.addEventListener("DOMContentLoaded", () => {
  const editor = document.getElementById("editor");
  editor.value = tfdebug.stored("tfdebug-editor") || "vscode";
  if (!editor.value) editor.value = "vscode";
  editor.addEventListener("change", () => { tfdebug.stored("tfdebug-editor", editor.value); tfdebug.linkPlaces(); });
  tfdebug.linkPlaces();
  document.getElementById("theme").addEventListener("click", () => {
    const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    tfdebug.stored("tfdebug-theme", theme);
    tfdebug.onTheme.forEach((redraw) => redraw());
  });
  for (const button of document.querySelectorAll("[data-copy]")) button.addEventListener("click", () => copy(button));
  const search = document.getElementById("search");
  document.addEventListener("keydown", (event) => {
    if (search && event.key === "/" && !/INPUT|SELECT|TEXTAREA/.test(event.target.tagName)) { event.preventDefault(); search.focus(); }
  });
});
