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
  const watch = (box, name) => {
    box.setAttribute("role", "group"); // what a keyboard stops at needs a name
    box.setAttribute("aria-label", name);
    box.addEventListener("scroll", () => cue(box), { passive: true });
    resized.observe(box);
  };
  const resized = new ResizeObserver((entries) => entries.forEach((entry) => cue(entry.target)));
  for (const box of document.querySelectorAll(".bd-article :is(.cell_output .output, .pst-scrollable-table-container)")) {
    if (!box.querySelector("table")) continue;
    const corner = box.querySelector("caption, thead th:first-child")?.textContent.trim();
    watch(box, corner ? `Table: ${corner}` : "Table");
  }

  // A figure can be saved as the SVG that it is, under its own name.
  for (const image of document.querySelectorAll('.bd-article figure[id] > img[src$=".svg"]')) {
    const link = Object.assign(document.createElement("a"), { href: image.src, download: `${image.parentElement.id}.svg` });
    link.className = "saves";
    link.textContent = "SVG";
    link.setAttribute("aria-label", "Download this figure as SVG");
    image.parentElement.querySelector("figcaption p")?.append(" ", link);
  }

  // A figure that a phone would shrink to less than half scrolls, too, and is shown at three quarters of its size.
  const phone = 600; // pixels, as in book.css
  for (const image of document.querySelectorAll(".bd-article .cell_output figure > img")) {
    const fit = () => {
      if (!image.naturalWidth || innerWidth > phone || image.clientWidth > image.naturalWidth / 2) return;
      const box = document.createElement("div");
      box.className = "wide-figure";
      box.tabIndex = 0; // so that its arrow keys scroll it; of tables the theme sees to that
      box.style.setProperty("--width", `${0.75 * image.naturalWidth}px`);
      image.replaceWith(box);
      box.append(image);
      watch(box, "Figure");
    };
    image.complete ? fit() : image.addEventListener("load", fit);
  }
});
