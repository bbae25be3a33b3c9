document.querySelectorAll("table.sortable th button").forEach((button) => {
  button.addEventListener("click", () => {
    const head = button.closest("th");
    const at = [...head.parentNode.children].indexOf(head);
    const body = head.closest("table").tBodies[0];
    const up = head.getAttribute("aria-sort") !== "ascending";
    head.parentNode.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const key = (row) => row.children[at].dataset.value ?? row.children[at].textContent;
    const rows = [...body.rows].sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      const [n, m] = [parseFloat(x), parseFloat(y)];
      const order = Number.isNaN(n) || Number.isNaN(m) ? x.localeCompare(y) : n - m;
      return up ? order : -order;
    });
    body.append(...rows);
  });
});
