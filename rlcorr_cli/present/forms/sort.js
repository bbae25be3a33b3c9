document.querySelectorAll("table.sortable th button").forEach((button) => {
  button.addEventListener("click", () => {
    const head = button.closest("th");
    const at = [...head.parentNode.children].indexOf(head);
    const body = head.closest("table").tBodies[0];
    const up = head.getAttribute("aria-sort") !== "ascending";
    head.parentNode.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const rows = [...body.rows].sort((a, b) => {
      const [x, y] = [a.children[at], b.children[at]];
      const [n, m] = [Number(x.dataset.value ?? NaN), Number(y.dataset.value ?? NaN)];
      const order = Number.isNaN(n) || Number.isNaN(m) ? x.textContent.localeCompare(y.textContent) : n - m;
      return up ? order : -order;
    });
    body.append(...rows);
  });
});
