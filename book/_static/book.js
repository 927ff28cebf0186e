document.addEventListener("DOMContentLoaded", () => {
  // Where a row is shown as a card (book.css), each cell stands below its column's heading.
  for (const table of document.querySelectorAll(".cell_output table:not(.dataframe)")) {
    const headings = [...table.querySelectorAll("thead tr:first-child th")].map((heading) => heading.textContent.trim());
    for (const row of table.querySelectorAll("tbody tr"))
      [...row.children].forEach((cell, i) => headings[i] && (cell.dataset.heading = headings[i]));
  }

  // A table that is wider than its box says so: a line above it, and columns that fade where there are more of them.
  const paper = 670; // pixels of a line of text on A4
  const cue = (box) => {
    if (matchMedia("print").matches) return; // it has shrunk already
    box.style.setProperty("--shrink", Math.min(1, paper / box.scrollWidth));
    const hidden = box.scrollWidth - box.clientWidth;
    box.classList.toggle("scrolls", hidden > 1);
    box.classList.toggle("more-right", box.scrollLeft < hidden - 1);
    box.classList.toggle("more-left", hidden > 1 && box.scrollLeft > 1);
  };
  const resized = new ResizeObserver((entries) => entries.forEach((entry) => cue(entry.target)));
  for (const box of document.querySelectorAll(".bd-article :is(.cell_output .output, .pst-scrollable-table-container)")) {
    if (!box.querySelector("table")) continue;
    box.setAttribute("role", "group"); // what a keyboard stops at needs a name
    box.setAttribute("aria-label", "Table");
    box.addEventListener("scroll", () => cue(box), { passive: true });
    resized.observe(box);
  }
});
