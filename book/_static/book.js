document.addEventListener("DOMContentLoaded", () => {
  // A fold is named by what it says, and not by "Toggle hidden content".
  for (const fold of document.querySelectorAll("details.hide > summary")) fold.removeAttribute("aria-label");

  // To a screen reader a table's heading says what it heads: a column or a row, or a group of them.
  for (const heading of document.querySelectorAll(".bd-article th:not([scope])")) {
    const [of, span] = heading.closest("thead") ? ["col", heading.colSpan] : ["row", heading.rowSpan];
    heading.scope = span > 1 ? `${of}group` : of;
  }

  // Where a row is shown as a card (book.css), each cell stands below its column's heading.
  for (const table of document.querySelectorAll(".cell_output table:not(.dataframe)")) {
    const headings = [...table.querySelectorAll("thead tr:first-child th")].map((heading) => heading.textContent.trim());
    for (const row of table.querySelectorAll("tbody tr"))
      [...row.children].forEach((cell, i) => headings[i] && (cell.dataset.heading = headings[i]));
  }

  // A long name in a sentence, like recorded/docstrings or lab/en:non_member~lab/later, may go on below between its parts.
  for (const cell of document.querySelectorAll("table.cards td"))
    cell.innerHTML = cell.innerHTML.replace(/([:~]|\w{6}\/)(?=\w)(?![^<]*>)/g, "$&<wbr>");

  // Each line of code knows how far it is indented, for book.css to indent what goes on below it.
  for (const code of document.querySelectorAll(".bd-article :not(.output) > .highlight pre"))
    code.innerHTML = code.innerHTML.replace(/((?:<[^>]*>)*)( *).*\n?/g, (line, _tags, spaces) =>
      line && `<span class="line" style="--goes-on: ${spaces.length + 4}ch">${line}</span>`);

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
  const fade = (box) => {
    box.addEventListener("scroll", () => cue(box), { passive: true });
    resized.observe(box);
  };
  const watch = (box, name) => {
    box.setAttribute("role", "group"); // what a keyboard stops at needs a name
    box.setAttribute("aria-label", name);
    fade(box);
  };
  const resized = new ResizeObserver((entries) => entries.forEach((entry) => cue(entry.target)));
  for (const box of document.querySelectorAll(".bd-article :is(.cell_output .output, .pst-scrollable-table-container)")) {
    if (!box.querySelector("table")) continue;
    const corner = box.querySelector("caption, thead th:first-child")?.textContent.trim();
    watch(box, corner ? `Table: ${corner}` : "Table");
  }

  // On a phone the contents lie over the page: a tap on one of them closes them.
  document.addEventListener("click", ({ target }) => target.closest('dialog a[href^="#"]')?.closest("dialog").close());

  // A formula that is wider than a phone fades, too, once it has been set.
  addEventListener("load", async () => {
    await window.MathJax?.startup.promise;
    for (const box of document.querySelectorAll('.bd-article mjx-container[display="true"]')) fade(box);
  });

  // A figure can be saved as the SVG that it is, under its own name.
  for (const image of document.querySelectorAll('.bd-article figure[id] > img[src$=".svg"]')) {
    const link = Object.assign(document.createElement("a"), { href: image.src, download: `${image.parentElement.id}.svg` });
    link.className = "saves";
    link.textContent = "SVG";
    link.setAttribute("aria-label", "Download this figure as SVG");
    image.parentElement.querySelector("figcaption p")?.append(" ", link);
  }

  // A figure that a phone would shrink to less than 7/10 scrolls, too, and is shown at three quarters of its size.
  const phone = 600; // pixels, as in book.css
  for (const image of document.querySelectorAll(".bd-article .cell_output figure > img")) {
    const fit = () => {
      if (!image.naturalWidth || innerWidth > phone || image.clientWidth > 0.7 * image.naturalWidth) return;
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

  // A text area becomes an editor of Python: Enter and Tab indent, a painted copy below shows through, and what is
  // typed stays over a reload. Escape, then Tab leaves it.
  const token = new RegExp(
    [
      "(?<c1>#.*)",
      `(?<s2>"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|"(?:\\\\.|[^"\\\\\n])*"?|'(?:\\\\.|[^'\\\\\n])*'?)`,
      "\\b(?<kc>True|False|None)\\b",
      "\\b(?<k>and|as|assert|break|class|continue|def|del|elif|else|except|finally|for|from|if|import|in|is|lambda|not|or|pass|raise|return|try|while|with|yield)\\b",
      "\\b(?<nb>abs|all|any|bool|dict|enumerate|float|int|len|list|map|max|min|print|range|reversed|round|set|sorted|str|sum|tuple|zip)(?=\\()",
      "\\b(?<mi>\\d[\\d_.]*(?:e[+-]?\\d+)?)",
      "(?<n>[A-Za-z_]\\w*)",
    ].join("|"),
    "g",
  );
  const paint = (code, painted) => {
    let end = 0, before = "";
    painted.replaceChildren();
    for (const { 0: word, index, groups } of code.matchAll(token)) {
      const kind = /^(def|class)$/.test(before) ? "nf" : Object.keys(groups).find((name) => groups[name] !== undefined);
      painted.append(code.slice(end, index), Object.assign(document.createElement("span"), { className: kind, textContent: word }));
      [end, before] = [index + word.length, word];
    }
    painted.append(code.slice(end), "\n");
  };
  const makeEditor = (editor) => {
    const [box, painted, help] = ["div", "span", "small"].map((name) => document.createElement(name));
    const { font, padding, tabSize, borderWidth } = getComputedStyle(editor);
    box.className = "code-box";
    Object.assign(painted, { className: "painted highlight", ariaHidden: "true" });
    Object.assign(painted.style, { font, padding, tabSize, borderWidth });
    Object.assign(help, { textContent: "Tab indents; Escape, then Tab, leaves.", id: `help-${editor.dataset.keep}` });
    editor.setAttribute("aria-describedby", help.id);
    editor.replaceWith(box);
    box.append(painted, editor);
    box.after(help);
    const insert = (text) => {
      if (document.execCommand(text ? "insertText" : "delete", false, text)) return;
      editor.setRangeText(text, editor.selectionStart, editor.selectionEnd, "end");
      editor.dispatchEvent(new Event("input", { bubbles: true }));
    };
    const shift = (back) => {
      const { value, selectionStart, selectionEnd } = editor, from = value.lastIndexOf("\n", selectionStart - 1) + 1;
      const lines = value.slice(from, selectionEnd);
      if (!back && !lines.slice(selectionStart - from).includes("\n"))
        return insert(" ".repeat(4 - ((selectionStart - from) % 4)));
      const end = back && selectionStart === selectionEnd ? from + lines.match(/^ */)[0].length : selectionEnd;
      const changed = back ? value.slice(from, end).replace(/^ {1,4}/gm, "") : lines.replace(/^(?=.)/gm, "    ");
      if (changed === value.slice(from, end)) return;
      editor.setSelectionRange(from, end);
      insert(changed);
      const caret = Math.max(from, selectionStart - (end - from - changed.length));
      if (selectionStart < selectionEnd) editor.setSelectionRange(from, from + changed.length);
      else editor.setSelectionRange(caret, caret);
    };
    let leaves = false;
    editor.addEventListener("keydown", (event) => {
      const isPlain = !event.ctrlKey && !event.altKey && !event.metaKey && !event.isComposing;
      if (event.key === "Tab" && isPlain && !leaves) {
        event.preventDefault();
        shift(event.shiftKey);
      } else if (event.key === "Enter" && isPlain && !event.shiftKey) {
        event.preventDefault();
        const before = editor.value.slice(0, editor.selectionStart), line = before.slice(before.lastIndexOf("\n") + 1);
        insert(`\n${line.match(/^ */)[0]}${/:\s*(#.*)?$/.test(line) ? "    " : ""}`);
      }
      leaves = event.key === "Escape" || (leaves && event.key === "Shift");
    });
    const follow = () => ([painted.scrollLeft, painted.scrollTop] = [editor.scrollLeft, editor.scrollTop]);
    const key = `${editor.dataset.keep}-code`, given = editor.value;
    editor.addEventListener("scroll", follow);
    editor.addEventListener("input", () => {
      paint(editor.value, painted);
      follow();
      try {
        editor.value === given ? localStorage.removeItem(key) : localStorage.setItem(key, editor.value);
      } catch {} // a browser that keeps nothing
    });
    try {
      editor.value = localStorage.getItem(key) ?? given;
    } catch {}
    paint(editor.value, painted);
  };
  // The quiz: a question's choices become radio buttons, of which its fold says what is right or wrong, and a score.
  const quiz = document.querySelector("section#quiz"), folds = [...(quiz?.querySelectorAll("details.sd-dropdown") ?? [])];
  const made = (name, of) => Object.assign(document.createElement(name), of);
  const tried = new Map(), score = made("p", { className: "score", role: "status" });
  folds.forEach((fold, n) => {
    const choices = fold.previousElementSibling, question = choices.previousElementSibling;
    const says = [...fold.querySelectorAll("li")].map((item) => item.innerHTML);
    const field = made("fieldset"), legend = made("legend"), said = made("div", { role: "status" });
    const check = made("button", { type: "button", textContent: "Check" });
    legend.append(...question.childNodes);
    field.append(legend, ...[...choices.children].map((choice) => {
      const label = made("label"), text = made("span");
      text.append(...(choice.querySelector("p") ?? choice).childNodes);
      label.append(made("input", { type: "radio", name: `question-${n}`, autocomplete: "off" }), text);
      return label;
    }), check, said);
    check.onclick = () => {
      const at = [...field.querySelectorAll("input")].findIndex((button) => button.checked);
      said.innerHTML = says[at] ?? "Choose an answer first.";
      window.MathJax?.typesetPromise?.([said]);
      if (at < 0) return;
      field.className = said.textContent.trim().startsWith("Right.") ? "right" : "wrong";
      if (!tried.has(n)) tried.set(n, field.className);
      const right = [...tried.values()].filter((of) => of === "right").length;
      score.textContent = `${right} of ${tried.size} right at the first try, ${folds.length - tried.size} to go.`;
    };
    question.remove();
    choices.remove();
    fold.replaceWith(field);
  });
  if (folds.length) quiz.append(score);

  // An exercise whose check is plain Python (tag `in-page`) is written and checked in the page, too, by the interpreter
  // of the editor (playground.html): in a worker, so that an endless loop can be ended.
  const work = async ({ wasm, code, check }) => {
    let who = "Your code";
    try {
      const packed = new Blob([Uint8Array.from(atob(wasm), (letter) => letter.charCodeAt(0))]);
      const plain = await new Response(packed.stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
      const url = URL.createObjectURL(new Blob([plain], { type: "application/wasm" }));
      const python = await loadMicroPython({ url, stdout: () => {} });
      python.runPython("import math");
      python.runPython(code);
      who = "The check";
      python.runPython(check);
      postMessage("Right: the check passes.");
    } catch (error) {
      const lines = [...String(error.message).matchAll(/line (\d+)/g)].map(([, line]) => Number(line));
      const said = String(error.message).trim().split("\n").pop().replace(/:$/, "");
      if (said.startsWith("NotImplementedError")) return postMessage("No answer yet: write yours in place of the line with raise.");
      const missing = /ImportError: no module named '?(\w+)'?/, failed = check.split("\n")[lines[0] - 1]?.trim();
      const where = who === "Your code" ? `${lines.length ? `, line ${lines.pop()}` : ""}` : failed ? ` fails at ${failed}` : "";
      postMessage(`${who}${where}: ${said.replace(missing, "there is no module $1: use math; no NumPy here")}`);
    }
  };
  const loaded = () => new Promise((resolve, reject) => {
    if (window.MICROPYTHON) return resolve(window.MICROPYTHON);
    const src = `${document.documentElement.dataset.content_root || ""}_static/micropython.js`;
    const found = { src, onload: () => resolve(window.MICROPYTHON), onerror: reject };
    document.head.append(Object.assign(document.createElement("script"), found));
  });
  const seconds = 10;
  for (const [number, checked] of [...document.querySelectorAll(".cell.tag_check.tag_in-page")].entries()) {
    const stub = [...document.querySelectorAll(".cell.tag_exercise")].findLast((cell) => cell.compareDocumentPosition(checked) & 4);
    const [box, editor, button, anew, said] = ["div", "textarea", "button", "button", "p"].map((name) => document.createElement(name));
    const given = stub.querySelector("pre").textContent.trimEnd();
    Object.assign(editor, { value: given, rows: given.split("\n").length + 4, wrap: "off", spellcheck: false, autocapitalize: "off" });
    Object.assign(editor, { className: "code", ariaLabel: "Your answer, in Python" });
    editor.dataset.keep = `mialib-${location.pathname.split("/").pop()}-${number}`;
    Object.assign(button, { type: "button", textContent: "Check" });
    Object.assign(anew, { type: "button", textContent: "Start anew" });
    anew.onclick = () => {
      editor.value = given;
      editor.dispatchEvent(new Event("input"));
    };
    said.setAttribute("role", "status");
    const end = (text, worker) => {
      worker?.terminate();
      [button.disabled, said.textContent] = [false, text];
    };
    button.onclick = async () => {
      [button.disabled, said.textContent] = [true, "Running…"];
      const python = await loaded().catch(() => end("The interpreter is not in this copy of the book."));
      if (!python) return;
      const parts = [python.source, `\nonmessage = ({ data }) => (${work})(data);`];
      const worker = new Worker(URL.createObjectURL(new Blob(parts, { type: "text/javascript" })));
      const timer = setTimeout(() => end(`Stopped after ${seconds} seconds: is there a loop that never ends?`, worker), 1000 * seconds);
      worker.onmessage = ({ data }) => (clearTimeout(timer), end(data, worker));
      worker.postMessage({ wasm: python.wasm, code: editor.value, check: checked.querySelector("pre").textContent });
    };
    box.className = "tries";
    box.append(editor, button, anew, said);
    stub.classList.add("tried");
    checked.classList.add("tried");
    stub.after(box);
  }
  document.querySelectorAll(".bd-article textarea.code").forEach(makeEditor);
});
