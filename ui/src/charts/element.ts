/** Elements in one line each. Text always goes in as text, so nothing that a run says can become markup. */
export type Child = Node | string | null | undefined | false;
type Properties = { class?: string; [attribute: string]: string | boolean | undefined };

export function element<K extends keyof HTMLElementTagNameMap>(tag: K, properties: Properties = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === true) made.setAttribute(name, "");
    else if (typeof value === "string") made.setAttribute(name, value);
  }
  made.append(...children.filter((child): child is Node | string => child !== null && child !== undefined && child !== false));
  return made;
}
