// A table that is wider than its box says so: a line above it, and columns that fade where there are more of them.
document.addEventListener("DOMContentLoaded", () => {
  const cue = (box) => {
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
