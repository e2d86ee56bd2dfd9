// Markdown as nodes. Text of the model only ever becomes text nodes: nothing it writes is HTML, a script or a style.

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`\s]*)[^`]*$/;
const ITEM = /^(\s*)(?:[-*+]|(\d{1,9})[.)])\s+(.*)$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const ROW = /^\s*\|.*\|\s*$/;
const COLUMNS = /^\s*\|(?:\s*:?-+:?\s*\|)+\s*$/;
const INLINE = /(`+)([^`]|[^`][\s\S]*?[^`])\1(?!`)|\*\*(?=\S)([\s\S]*?\S)\*\*|\*(?=\S)([^*]*?[^\s*])\*|\[([^\]\n]+)\]\((https?:\/\/[^\s()]+)\)/;

export function make(name, properties = {}, ...children) {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children);
  return node;
}

// Returns the blocks of a text. copy: what a code block's button does with its text.
export function markdown(text, copy) {
  return blocks(text.split("\n"), copy);
}

function blocks(lines, copy) {
  const made = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    const fence = FENCE.exec(line), heading = HEADING.exec(line);
    if (!line.trim()) {
      at += 1;
    } else if (fence) {
      const close = new RegExp(`^ {0,3}${fence[1][0]}{${fence[1].length},}\\s*$`);
      const end = endOf(lines, at + 1, (each) => close.test(each));
      made.push(codeBlock(lines.slice(at + 1, end).join("\n"), fence[2], copy));
      at = end + 1;
    } else if (heading) {
      made.push(make(`h${heading[1].length}`, {}, ...inline(heading[2])));
      at += 1;
    } else if (RULE.test(line)) {
      made.push(make("hr"));
      at += 1;
    } else if (line.startsWith(">")) {
      const end = endOf(lines, at, (each) => !each.startsWith(">"));
      const inner = lines.slice(at, end).map((each) => each.replace(/^> ?/, ""));
      made.push(make("blockquote", {}, ...blocks(inner, copy)));
      at = end;
    } else if (ITEM.test(line)) {
      const end = listEnd(lines, at);
      made.push(list(lines.slice(at, end), copy));
      at = end;
    } else if (ROW.test(line) && COLUMNS.test(lines[at + 1] ?? "")) {
      const end = endOf(lines, at, (each) => !ROW.test(each));
      made.push(table(lines.slice(at, end)));
      at = end;
    } else {
      const end = endOf(lines, at + 1, (each) => !each.trim() || FENCE.test(each) || HEADING.test(each) || ITEM.test(each) || each.startsWith(">"));
      made.push(make("p", {}, ...inline(lines.slice(at, end).join("\n"))));
      at = end;
    }
  }
  return made;
}

function endOf(lines, from, isEnd) {
  let at = from;
  while (at < lines.length && !isEnd(lines[at], at)) at += 1;
  return at;
}

// A list goes on with items of its kind and with what stands deeper than its marks, empty lines between them.
function listEnd(lines, from) {
  const first = ITEM.exec(lines[from]);
  const belongs = (line) => {
    const item = ITEM.exec(line);
    if (!item || item[1].length > first[1].length) return /^\s/.test(line);
    return (item[2] === undefined) === (first[2] === undefined);
  };
  return endOf(lines, from, (line, at) => !belongs(line.trim() ? line : lines[endOf(lines, at, (each) => each.trim())] ?? ""));
}

// One list; deeper lines belong to the item before them.
function list(lines, copy) {
  const first = ITEM.exec(lines[0]);
  const made = make(first[2] === undefined ? "ul" : "ol");
  if (first[2] !== undefined) made.start = Number(first[2]);
  let inner = null;
  const finish = () => {
    if (!inner) return;
    const parts = blocks(inner, copy);
    const tight = parts[0]?.tagName === "P" ? [...parts[0].childNodes, ...parts.slice(1)] : parts;
    made.append(make("li", {}, ...tight));
  };
  for (const line of lines) {
    const item = ITEM.exec(line);
    if (item && item[1].length <= first[1].length) {
      finish();
      inner = [item[3]];
    } else {
      inner.push(line.replace(new RegExp(`^\\s{0,${first[1].length + 2 + (first[2] ?? "").length}}`), ""));
    }
  }
  finish();
  return made;
}

function table(lines) {
  const cells = (line) => line.trim().slice(1, -1).split("|").map((cell) => inline(cell.trim()));
  const row = (line, name) => make("tr", {}, ...cells(line).map((cell) => make(name, {}, ...cell)));
  const head = make("thead", {}, row(lines[0], "th"));
  const body = make("tbody", {}, ...lines.slice(2).map((line) => row(line, "td")));
  return make("div", { className: "table" }, make("table", {}, head, body));
}

function codeBlock(code, language, copy) {
  const button = make("button", { type: "button", textContent: "Copy" });
  button.addEventListener("click", () => copy(code, button));
  const caption = make("figcaption", {}, make("span", { textContent: language || "code" }), button);
  const text = make("pre", { tabIndex: 0 }, make("code", { textContent: code }));
  return make("figure", { className: "code" }, caption, text);
}

function inline(text) {
  const made = [];
  let rest = text;
  for (let found = INLINE.exec(rest); found; found = INLINE.exec(rest)) {
    const [whole, ticks, code, strong, emphasis, label, address] = found;
    made.push(rest.slice(0, found.index));
    if (ticks) made.push(make("code", { textContent: code.trim() }));
    else if (strong !== undefined) made.push(make("strong", {}, ...inline(strong)));
    else if (emphasis !== undefined) made.push(make("em", {}, ...inline(emphasis)));
    else made.push(make("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, label));
    rest = rest.slice(found.index + whole.length);
  }
  return [...made, rest].filter((part) => part !== "");
}
