// Draws messages. Nothing here asks the server or keeps anything.

import { make, markdown } from "./markdown.js";

export async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch { // no permission, or a page that is not from this machine
    button.textContent = "Could not copy";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

export function figuresOf(timings) {
  if (!timings) return "";
  const told = timings.speculative ?? {};
  const parts = [`${timings.predicted_n} tokens`];
  if (timings.predicted_per_second) parts.push(`${timings.predicted_per_second.toFixed(1)} tok/s`);
  if (told.accept_length) parts.push(`accept length ${told.accept_length.toFixed(1)}`);
  if (timings.cache_n) parts.push(`${timings.cache_n} of the prompt's tokens were known`);
  return parts.join(" · ");
}

// A message on the page. actions: copy is given; edit(message, text) of a question, regenerate(message) of an answer.
export class Drawn {
  constructor(message, actions) {
    this.message = message;
    this.actions = actions;
    this.node = make("article", { className: `message ${message.role}` });
    this.node.setAttribute("aria-label", message.role === "user" ? "You" : "Answer");
    this.who = make("p", { className: "who", textContent: message.role === "user" ? "You" : "Answer" });
    this.thought = make("div");
    this.summary = make("summary");
    this.thinking = make("details", { className: "thinking" }, this.summary, this.thought);
    this.body = make("div", { className: "body" });
    this.wrong = make("p", { className: "wrong" });
    this.tools = make("div", { className: "tools" });
    this.node.append(this.who, this.thinking, this.body, this.wrong, this.tools);
    this.draw();
  }

  // Call it when the message has changed; going: it is still being written.
  draw({ going = false } = {}) {
    const { role, content, reasoning, wrong, stopped, timings } = this.message;
    this.thinking.hidden = !reasoning;
    if (this.thought.textContent !== (reasoning ?? "")) this.thought.textContent = reasoning ?? "";
    this.summary.textContent = going && !content ? "Thinking…" : "Thought";
    if (role === "user") this.body.textContent = content;
    else this.body.replaceChildren(...markdown(content, copyText));
    this.node.toggleAttribute("aria-busy", going);
    this.wrong.hidden = !wrong && !stopped;
    this.wrong.textContent = wrong ?? stopped ?? "";
    if (going) this.tools.replaceChildren();
    else this.tools.replaceChildren(...this.buttons(), figuresOf(timings));
  }

  buttons() {
    const button = (text, act) => {
      const made = make("button", { type: "button", textContent: text });
      made.addEventListener("click", () => act(made));
      return made;
    };
    const copy = button("Copy", (made) => copyText(this.message.content, made));
    if (this.message.role === "user") return [copy, button("Edit", () => this.edit())];
    return [copy, button("Regenerate", () => this.actions.regenerate(this.message))];
  }

  edit() {
    const field = make("textarea", { value: this.message.content, rows: 3 });
    field.setAttribute("aria-label", "Edit the message");
    const send = make("button", { type: "submit", textContent: "Send again" });
    const leave = make("button", { type: "button", textContent: "Leave as it was" });
    const form = make("form", { className: "edit" }, field, make("div", {}, send, " ", leave));
    const back = () => { form.replaceWith(this.body); this.draw(); };
    leave.addEventListener("click", back);
    form.addEventListener("keydown", (event) => {
      if (event.key === "Escape") { event.stopPropagation(); back(); }
      if (event.key === "Enter" && !event.shiftKey && event.target === field && !event.isComposing) {
        event.preventDefault();
        form.requestSubmit();
      }
    });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (field.value.trim()) this.actions.edit(this.message, field.value);
    });
    this.body.replaceWith(form);
    this.tools.replaceChildren();
    field.focus();
  }
}
