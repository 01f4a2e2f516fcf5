/**
 * Prints the user-visible texts of a folder of TypeScript sources as JSON: [file, line, text], for tools/texts.py.
 *
 *     node tools/texts.mjs src
 */
import { readdirSync, readFileSync } from "node:fs";
import { join, relative } from "node:path";
import ts from "typescript";

const root = process.argv[2];
/** The values of these are read by people, however short they are. */
const SHOWN = new Set(["label", "title", "placeholder", "aria-label", "alt", "help", "hint", "heading", "description", "caption", "unit", "text", "action", "message", "empty"]);
/** The values of these are no texts, however many words they have. */
const HIDDEN = new Set(["className", "class", "d", "viewBox", "points", "transform", "style", "rel", "autoComplete", "sizes", "from"]);

const found = [];
for (const entry of readdirSync(root, { recursive: true, withFileTypes: true })) {
  const path = join(entry.parentPath ?? entry.path, entry.name);
  if (entry.isFile() && /\.tsx?$/.test(path) && !/(^|\/)test-|\.test\.|api\/(schema\.d|config-fields|request-fields)\./.test(relative(root, path))) read(path);
}
found.sort((a, b) => (a[0] === b[0] ? a[1] - b[1] : a[0] < b[0] ? -1 : 1));
console.log(JSON.stringify(found));

function read(path) {
  const source = ts.createSourceFile(path, readFileSync(path, "utf8"), ts.ScriptTarget.Latest, true, path.endsWith("x") ? ts.ScriptKind.TSX : ts.ScriptKind.TS);
  const add = (node, text) => {
    const line = source.getLineAndCharacterOfPosition(node.getStart(source)).line + 1;
    found.push([relative(root, path), line, text.split(/\s+/).join(" ").trim()]);
  };
  const visit = (node) => {
    if (ts.isImportDeclaration(node) || ts.isLiteralTypeNode(node)) return;
    const name = nameOf(node);
    if (name && HIDDEN.has(name)) return;
    // The children of an element are one text, with {} for values and inner elements.
    if (ts.isJsxElement(node) && node.children.some((child) => ts.isJsxText(child) && /[A-Za-z]/.test(child.text)))
      add(node, node.children.map(jsxPart).join(""));
    const text = literal(node);
    if (text !== undefined && isText(text, node)) add(node, text);
    ts.forEachChild(node, visit);
  };
  visit(source);
}

function jsxPart(node) {
  if (ts.isJsxText(node)) return node.text;
  if (ts.isJsxElement(node)) return node.children.map(jsxPart).join("");
  if (ts.isJsxExpression(node) && node.expression && ts.isStringLiteralLike(node.expression)) return node.expression.text;
  return "{}";
}

function literal(node) {
  if (ts.isStringLiteralLike(node)) return node.text;
  if (ts.isTemplateExpression(node)) return node.head.text + node.templateSpans.map((span) => `{}${span.literal.text}`).join("");
  return undefined;
}

function isText(text, node) {
  if (!/[A-Za-z]{2}/.test(text)) return false;
  let parent = node.parent;
  while (parent && (ts.isJsxExpression(parent) || ts.isConditionalExpression(parent) || ts.isParenthesizedExpression(parent) || ts.isBinaryExpression(parent))) parent = parent.parent;
  const name = parent && nameOf(parent);
  if (name && SHOWN.has(name)) return true;
  if (parent && (ts.isJsxElement(parent) || ts.isJsxFragment(parent))) return /[A-Za-z]{2}/.test(text);
  // Tailwind's classes outside attributes: words with a hyphen or colon, no capital, no full stop.
  const words = text.trim().split(/\s+/);
  if (words.length < 2) return false;
  return !words.every((word) => /^[a-z0-9@!*&>~+./:[\]()%#_,-]+$/.test(word) && (/[-:[\]]/.test(word) || /^(flex|grid|hidden|block|border|relative|absolute|truncate|underline|italic|uppercase|fixed|sticky|{})$/.test(word)));
}

function nameOf(node) {
  if (ts.isJsxAttribute(node)) return node.name.getText();
  if (ts.isPropertyAssignment(node) && (ts.isIdentifier(node.name) || ts.isStringLiteral(node.name))) return node.name.text;
  return undefined;
}
