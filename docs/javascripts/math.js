// Equations: `$…$` and `$$…$$` of the pages become MathML, which browsers draw themselves; nothing is loaded from elsewhere.
document.addEventListener("DOMContentLoaded", () => {
  for (const place of document.querySelectorAll(".arithmatex")) {
    const tex = place.textContent.trim();
    const displayMode = tex.startsWith("\\[");
    temml.render(tex.slice(2, -2), place, { displayMode });
  }
});
