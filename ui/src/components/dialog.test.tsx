// @vitest-environment jsdom
import { cleanup, render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { afterEach, describe, expect, it } from "vitest";
import { ConfirmDialog, Dialog } from "./dialog";
import { Menu } from "./menu";

afterEach(cleanup);

function Page() {
  const [open, setOpen] = useState<"form" | "question" | null>(null);
  const close = () => setOpen(null);
  return (
    <>
      <button type="button" onClick={() => setOpen("form")}>
        Add
      </button>
      <Menu label="More actions" items={[{ text: "Delete", onChoose: () => setOpen("question") }]} />
      {open === "form" && (
        <Dialog open onOpenChange={close} title="Add a model">
          <input aria-label="Name" />
        </Dialog>
      )}
      {open === "question" && (
        <ConfirmDialog open onOpenChange={close} title="Delete it?" action="Delete" onConfirm={async () => {}}>
          It is gone then.
        </ConfirmDialog>
      )}
    </>
  );
}

describe("a dialog that is closed with a key", () => {
  it("gives the focus back to the button that opened it", async () => {
    const user = userEvent.setup();
    render(<Page />);
    screen.getByRole("button", { name: "Add" }).focus();
    await user.keyboard("{Enter}");
    await waitFor(() => expect(document.activeElement).toBe(screen.getByLabelText("Name")));
    await user.keyboard("{Escape}");
    await waitFor(() => expect(document.activeElement).toBe(screen.getByRole("button", { name: "Add" })));
  });

  it("gives it back to the menu that opened it", async () => {
    const user = userEvent.setup();
    render(<Page />);
    screen.getByRole("button", { name: "More actions" }).focus();
    await user.keyboard("{Enter}");
    await screen.findByRole("menuitem", { name: "Delete" });
    await user.keyboard("{Enter}");
    await screen.findByRole("alertdialog");
    await user.keyboard("{Escape}");
    await waitFor(() => expect(document.activeElement).toBe(screen.getByRole("button", { name: "More actions" })));
  });
});
