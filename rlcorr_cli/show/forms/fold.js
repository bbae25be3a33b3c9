// On a narrow screen a page would be many screens long: its sections begin folded, but for the first of pictures.
const sections = [...document.querySelectorAll("details:not(.card details)")];
if (matchMedia("(max-width: 47.9rem)").matches) {
  const first = sections.find((section) => section.querySelector("figure"));
  for (const section of sections) if (section !== first) section.removeAttribute("open");
}
const unfoldTarget = () => {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  const section = target.closest("details") ?? target.querySelector("details");
  if (section) section.open = true;
};
addEventListener("hashchange", unfoldTarget);
addEventListener("beforeprint", () => sections.forEach((section) => (section.open = true)));
unfoldTarget();
