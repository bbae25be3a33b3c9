// Cards of rows, token by token: text and colours are made as a card comes into view, and values are told of the token
// under the pointer or the arrow keys.  Text goes into the page by textContent alone.
(() => {
  const root = document.querySelector(".viewer");
  if (!root) return;
  const list = root.querySelector(".cards"), cards = [...list.children], tip = root.querySelector(".tip");
  const field = name => root.querySelector(`[name=${name}]`), SHADES = 8;
  const MOST_DRAWN = 40, known = new Map(), view = new DataView(new ArrayBuffer(4));
  let colour = "l", low = -Infinity, high = Infinity, current = null;

  const bytes = text => atob(text);
  const integers = text => {
    const from = bytes(text), out = [];
    for (let i = 0, value = 0, shift = 0; i < from.length; i++) {
      const byte = from.charCodeAt(i);
      value += (byte & 127) * 2 ** shift;
      if (byte > 127) shift += 7; else { out.push(value); value = shift = 0; }
    }
    return out;
  };
  const floats = text => {
    const from = bytes(text), out = new Float32Array(from.length / 3);
    for (let i = 0; i < out.length; i++) {
      view.setUint32(0, from.charCodeAt(3 * i) * 2 ** 24 + from.charCodeAt(3 * i + 1) * 65536 + from.charCodeAt(3 * i + 2) * 256);
      out[i] = view.getFloat32(0);
    }
    return out;
  };
  const row = card => {
    if (!known.has(card)) {
      const d = JSON.parse(card.querySelector("script").textContent);
      const ratios = floats(d.l);
      known.set(card, { d, ratios, get all() {
        const all = { text: d.t, lengths: integers(d.n), flags: integers(d.f), l: ratios, c: d.c.map(floats) };
        all.r = all.c[0];
        for (const name of ["w", "e"]) if (d[name]) all[name] = floats(d[name]);
        if (d.i) all.i = integers(d.i);
        Object.defineProperty(this, "all", { value: all });
        return all;
      } });
    }
    return known.get(card);
  };

  // A class of colour for one value.  Scales are fixed: one outlier never sets them.
  const shade = (all, i) => {
    const value = (all[colour] || all.l)[i], step = part => Math.min(SHADES, Math.ceil(part * SHADES));
    if (!(all.flags[i] & 1) || Number.isNaN(value)) return "";
    if (colour === "r") return value > -.05 ? "" : `s${step(-value / 8)}`;
    if (colour === "e") return value < .02 ? "" : `s${step(value / 4)}`;
    const ratio = colour === "w" ? Math.log(value) : value, part = Math.min(1, Math.abs(ratio));
    return part < .04 ? "" : (ratio > 0 ? "a" : "b") + step(part);
  };
  const look = (all, i) => {
    const flags = all.flags[i], inside = (flags & 1) && all.l[i] >= low && all.l[i] <= high;
    return [shade(all, i), flags & 4 ? "far" : "", flags & 2 ? "rejected" : "", picks() && !inside ? "off" : ""].join(" ").trim();
  };
  const picks = () => low !== -Infinity || high !== Infinity;

  const draw = card => {
    const place = card.querySelector(".tokens"), { all } = row(card), made = document.createDocumentFragment();
    let at = 0, run = null;
    all.lengths.forEach((length, i) => {
      const counts = all.flags[i] & 1, text = all.text.slice(at, at += length), token = document.createElement("b");
      if (!run || run.counts !== counts) {
        run = { counts, element: document.createElement("span") };
        run.element.className = counts ? "run" : "run masked";
        made.append(run.element);
      }
      text.split("\n").forEach((part, n) => {
        if (n) {
          const end = document.createElement("i");
          end.textContent = "↵";
          token.append(end, "\n");
        }
        if (part) token.append(part);
      });
      token.className = look(all, i);
      token.dataset.i = i;
      run.element.append(token);
    });
    place.replaceChildren(made);
    place.style.minHeight = "";
    drawn.add(card);
  };
  const drawn = new Set();
  const seen = new IntersectionObserver(entries => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) { if (!drawn.has(target)) draw(target); }
      else if (drawn.size > MOST_DRAWN && drawn.has(target) && target !== current) {
        const place = target.querySelector(".tokens");
        place.style.minHeight = `${place.offsetHeight}px`;
        place.replaceChildren();
        drawn.delete(target);
      }
    }
  }, { rootMargin: "600px" });
  for (const card of cards) {
    card.querySelector(".tokens").style.minHeight = `${1.6 * Math.ceil(card.dataset.chars / 110)}rem`;
    seen.observe(card);
  }
  addEventListener("beforeprint", () => { for (const card of cards) if (!drawn.has(card)) draw(card); });
  const recolour = () => drawn.forEach(card => {
    const { all } = row(card);
    for (const token of card.querySelectorAll(".tokens b")) token.className = look(all, Number(token.dataset.i));
  });

  // What is told of one token.
  const digits = x => x === undefined || Number.isNaN(x) ? "–" : Math.abs(x) >= 1e5 || (x && Math.abs(x) < 1e-3) ? x.toExponential(2) : Number(x.toPrecision(4)).toString();
  const signed = x => (x > 0 ? "+" : "") + digits(x);
  const tell = token => {
    root.querySelector("b.here")?.classList.remove("here");
    if (!token) { tip.hidden = true; return; }
    token.classList.add("here");
    const { d, all } = row(token.closest(".card")), i = Number(token.dataset.i), flags = all.flags[i];
    const parts = [`#${i} “${token.textContent}”${all.i ? ` id ${all.i[i]}` : ""}`];
    d.p.forEach((name, p) => parts.push(`${name} ${digits(all.c[p][i])}`));
    if (flags & 1) {
      parts.push(`rollout p ${digits(Math.exp(all.r[i]))}`, `log-ratio ${signed(all.l[i])}`, `ratio ${digits(Math.exp(all.l[i]))}`);
      if (all.w) parts.push(`weight ${digits(all.w[i])}`);
    } else parts.push("masked");
    if (all.e) parts.push(`entropy ${digits(all.e[i])}`);
    if (flags & 2) parts.push("rejected");
    tip.textContent = parts.join("  ·  ");
    tip.hidden = false;
  };
  root.addEventListener("mouseover", event => tell(event.target.closest(".tokens b")));
  root.addEventListener("click", event => { const token = event.target.closest(".tokens b"); if (token) tell(token); });
  root.addEventListener("focusout", event => { if (event.target.classList.contains("tokens")) tell(null); });

  // Keys.
  const shown = () => [...list.querySelectorAll(".card:not([hidden])")];
  const go = card => {
    current = card;
    if (!drawn.has(card)) draw(card);
    let frames = 20;  // for so many it is kept in its place: cards that come into view above change their height
    const keep = () => {
      if (current !== card || !frames--) return;
      card.scrollIntoView({ block: "start", behavior: "instant" });
      requestAnimationFrame(keep);
    };
    keep();
    for (const act of ["wheel", "touchmove", "keydown", "pointerdown"])
      addEventListener(act, () => { frames = 0; }, { once: true, passive: true, capture: true });
    card.focus({ preventScroll: true });
    history.replaceState(null, "", `#${card.id}`);
  };
  const typing = target => /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName);
  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const text = event.target.closest?.(".card")?.querySelector(".tokens");
    if (event.key === "Escape") { if (typing(event.target)) event.target.blur(); tell(null); }
    else if (typing(event.target)) return;
    else if (event.key === "/") { event.preventDefault(); field("find").focus(); }
    else if (event.key === "j" || event.key === "k") {
      const all = shown(), at = all.indexOf(document.activeElement.closest?.(".card") || current);
      const next = all[event.key === "j" ? at + 1 : Math.max(0, at - 1)];
      if (next) go(next);
    } else if (text && /^(Arrow(Left|Right)|Home|End)$/.test(event.key)) {
      event.preventDefault();
      const all = [...text.querySelectorAll("b")], at = all.findIndex(token => token.classList.contains("here"));
      const last = all.length - 1, to = { ArrowLeft: Math.max(0, at - 1), ArrowRight: Math.min(last, at + 1), Home: 0, End: last }[event.key];
      tell(all[to]);
      all[to]?.scrollIntoView({ block: "nearest" });
    }
  });
  const follow = () => {
    const card = cards.find(each => `#${each.id}` === location.hash);
    if (card) { card.hidden = false; go(card); }
  };
  addEventListener("hashchange", follow);

  // Sorting and filtering.
  const key = (card, name) => { const value = card.dataset[name], number = Number(value); return value === "" ? null : Number.isNaN(number) ? value : number; };
  const arrange = () => {
    const by = field("sort").value, find = field("find").value.toLowerCase(), kept = field("kept")?.value, together = field("together")?.checked;
    const order = [...cards];
    const compare = (a, b) => a === b ? 0 : a === null ? 1 : b === null ? -1 : typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
    if (by) order.sort((a, b) => (/^(gap|n)$/.test(by) ? compare(key(b, by), key(a, by)) : compare(key(a, by), key(b, by))));
    if (together) order.sort((a, b) => compare(key(a, "group"), key(b, "group")));
    let n = 0, tokens = 0;
    for (const card of order) {
      const share = key(card, "kept");
      let fits = !find || `${card.querySelector("h3").textContent} ${card.querySelector(".facts").textContent} ${card.querySelector(".prompt")?.textContent ?? ""} ${row(card).d.t}`.toLowerCase().includes(find);
      fits &&= !kept || (kept === "whole" ? share === 1 : share !== null && share < 1);
      if (fits && picks()) {
        const inside = row(card).ratios.reduce((sum, ratio) => sum + (ratio >= low && ratio <= high), 0);
        tokens += inside;
        fits = inside > 0;
      }
      card.hidden = !fits;
      n += fits;
    }
    list.classList.toggle("together", !!together);
    const parts = [];
    let group = null;
    for (const card of order) {
      if (together && !card.hidden && card.dataset.group !== group) {
        const heading = document.createElement("h3");
        heading.className = "group";
        heading.textContent = group = card.dataset.group;
        parts.push(heading);
      }
      parts.push(card);
    }
    list.replaceChildren(...parts);
    root.querySelector(".count").textContent = `${n} of ${cards.length} rows${picks() ? `, ${tokens.toLocaleString("en")} tokens` : ""}`;
  };
  for (const name of ["sort", "kept", "together"]) field(name)?.addEventListener("change", arrange);
  field("find").addEventListener("input", arrange);
  field("colour")?.addEventListener("change", event => { colour = event.target.value; recolour(); });

  // The histogram: a drag over it, or the two fields, pick tokens.
  const plot = root.querySelector(".histogram svg");
  if (plot) {
    const end = Number(root.dataset.end), mark = plot.querySelector(".range"), WIDTH = plot.viewBox.baseVal.width;
    const pick = (from, to) => {
      [low, high] = [from, to];
      const at = value => WIDTH * (Math.max(-end, Math.min(end, value)) + end) / (2 * end);
      mark.setAttribute("x", at(low));
      mark.setAttribute("width", picks() ? Math.max(.2, at(high) - at(low)) : 0);
      field("low").value = Number.isFinite(low) ? Number(low.toPrecision(3)) : "";
      field("high").value = Number.isFinite(high) ? Number(high.toPrecision(3)) : "";
      arrange();
      recolour();
    };
    const value = event => {
      const box = plot.getBoundingClientRect(), part = (event.clientX - box.left) / box.width;
      return part < 1 / WIDTH ? -Infinity : part > 1 - 1 / WIDTH ? Infinity : end * (2 * part - 1);
    };
    let from = null;
    plot.addEventListener("pointerdown", event => { from = value(event); plot.setPointerCapture(event.pointerId); event.preventDefault(); });
    plot.addEventListener("pointerup", event => {
      if (from === null) return;
      const to = value(event), start = from;
      from = null;
      if (start === to) pick(-Infinity, Infinity); else pick(Math.min(start, to), Math.max(start, to));
    });
    const typed = (name, none) => field(name).value === "" ? none : Number(field(name).value);
    for (const name of ["low", "high"]) field(name).addEventListener("change", () => pick(typed("low", -Infinity), typed("high", Infinity)));
    field("clear").addEventListener("click", () => pick(-Infinity, Infinity));
  }
  follow();
})();
