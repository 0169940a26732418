/* Wide tables, code and drawings scroll inside their box: the Tab key then reaches the box, and the arrow keys scroll it. */
function reachBoxes() {
  for (const box of document.querySelectorAll('.md-typeset__scrollwrap, .md-typeset pre > code, .md-typeset p:has(> img[src$=".svg"])')) {
    const scrolls = box.scrollWidth > box.clientWidth;
    if (scrolls) box.setAttribute("tabindex", "0");
    else box.removeAttribute("tabindex");
    if (!box.matches("code") && (scrolls || !box.matches("p"))) {
      box.setAttribute("role", "group");
      box.setAttribute("aria-label", box.matches("p") ? "Picture" : "Table");
    }
  }
}

/* The theme makes the boxes of tables after the page has loaded. */
new MutationObserver(reachBoxes).observe(document.body, { childList: true, subtree: true });
for (const event of ["load", "resize"]) addEventListener(event, reachBoxes);
