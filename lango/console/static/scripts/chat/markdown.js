/**
 * A subset of Markdown, as elements. Other syntax stays text, and text becomes an attribute
 * only as the checked address of a link.
 */

import { el } from "../elements.js";

const FENCE = /^\s*(```|~~~)\s*([\w+-]*)\s*$/;
const HEADING = /^(#{1,4})\s+(.*)$/;
const BULLET = /^\s*[-*+]\s+(.*)$/;
const NUMBERED = /^\s*(\d{1,9})[.)]\s+(.*)$/;
const QUOTE = /^\s*>\s?(.*)$/;
const INLINE = /`([^`\n]+)`|\*\*([^*\n]+)\*\*|(?<![\w*])\*([^*\s][^*\n]*)\*(?!\w)|\[([^\]\n]+)\]\((https?:\/\/[^\s)]+)\)/g;

/** Show a text that may have grown: unchanged blocks are not redrawn. */
export function showMarkdown(node, text) {
  const blocks = blocksOf(text);
  const shown = [...node.children];
  blocks.forEach((source, index) => {
    const old = shown[index];
    if (old?.source === source) return;
    const made = element(source);
    made.source = source;
    if (old) old.replaceWith(made);
    else node.append(made);
  });
  shown.slice(blocks.length).forEach((old) => old.remove());
}

/** The sources of the blocks: code fences, and lines between empty lines. */
function blocksOf(text) {
  const blocks = [];
  let block = [];
  let fence = null;
  const close = () => {
    if (block.length) blocks.push(block.join("\n"));
    block = [];
  };
  for (const line of text.split("\n")) {
    const mark = FENCE.exec(line)?.[1];
    if (fence) {
      block.push(line);
      if (mark === fence) [fence] = [null, close()];
    } else if (mark) {
      close();
      fence = mark;
      block.push(line);
    } else if (line.trim() === "") close();
    else block.push(line);
  }
  close();
  return blocks;
}

function element(source) {
  const lines = source.split("\n");
  const fence = FENCE.exec(lines[0]);
  if (fence) return codeBlock(lines.slice(1), fence[1]);
  if (lines.every((line) => QUOTE.test(line))) {
    const quoted = el("blockquote");
    showMarkdown(quoted, lines.map((line) => QUOTE.exec(line)[1]).join("\n"));
    return quoted;
  }
  return paragraphs(lines);
}

function codeBlock(lines, mark) {
  const isClosed = FENCE.exec(lines.at(-1) ?? "")?.[1] === mark;
  const code = el("code", {}, (isClosed ? lines.slice(0, -1) : lines).join("\n"));
  return el("pre", { tabindex: "0" }, code);
}

/** Headings, lists and text, which may follow each other without an empty line. */
function paragraphs(lines) {
  const block = el("div", { class: "block" });
  let open = null;
  for (const line of lines) {
    const made = lineOf(line);
    if (open?.kind === made.kind && made.kind !== "heading") open.add(made);
    else {
      open = opened(made);
      block.append(open.node);
    }
  }
  return block;
}

function lineOf(line) {
  const heading = HEADING.exec(line);
  if (heading) return { kind: "heading", text: heading[2], level: heading[1].length };
  const bullet = BULLET.exec(line);
  if (bullet) return { kind: "bullets", text: bullet[1] };
  const numbered = NUMBERED.exec(line);
  if (numbered) return { kind: "numbers", text: numbered[2], start: numbered[1] };
  return { kind: "text", text: line };
}

function opened(first) {
  if (first.kind === "heading") {
    // Not heading elements: the page has its own.
    return { kind: "heading", node: el("p", { class: `heading h${first.level}` }, inline(first.text)) };
  }
  if (first.kind === "text") {
    const node = el("p", {}, inline(first.text));
    return { kind: "text", node, add: ({ text }) => node.append("\n", ...inline(text)) };
  }
  const name = first.kind === "bullets" ? "ul" : "ol";
  const list = el(name, { start: first.start }, el("li", {}, inline(first.text)));
  return { kind: first.kind, node: list, add: ({ text }) => list.append(el("li", {}, inline(text))) };
}

function inline(text) {
  const nodes = [];
  let end = 0;
  for (const found of text.matchAll(INLINE)) {
    nodes.push(text.slice(end, found.index), marked(found));
    end = found.index + found[0].length;
  }
  return [...nodes, text.slice(end)].filter((node) => node !== "");
}

function marked([, code, strong, emphasis, label, address]) {
  if (code !== undefined) return el("code", {}, code);
  if (strong !== undefined) return el("strong", {}, strong);
  if (emphasis !== undefined) return el("em", {}, emphasis);
  return el("a", { href: address, rel: "noreferrer noopener", target: "_blank" }, label);
}
