document.querySelectorAll("table.sortable th button").forEach((button) => {
  button.addEventListener("click", () => {
    const head = button.closest("th");
    const at = [...head.parentNode.children].indexOf(head);
    const body = head.closest("table").tBodies[0];
    const up = head.getAttribute("aria-sort") !== "ascending";
    head.parentNode.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const number = (cell) => Number(cell.dataset.value ?? NaN);
    const rows = [...body.rows].sort((a, b) => {
      const [x, y] = [a.children[at], b.children[at]];
      const [n, m] = [number(x), number(y)];
      // What has no number comes after all that have one, whichever way they are sorted.
      if (Number.isNaN(n) !== Number.isNaN(m)) return Number.isNaN(n) - Number.isNaN(m);
      const order = Number.isNaN(n) ? x.textContent.localeCompare(y.textContent) : n - m;
      return up ? order : -order;
    });
    body.append(...rows);
  });
});
