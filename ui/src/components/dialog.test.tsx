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

  it.each(["form", "question"] as const)("gives it to the page when the %s removed the button that opened it", async (kind) => {
    const user = userEvent.setup();
    render(<RemovingPage kind={kind} />);
    await user.click(screen.getByRole("button", { name: "Open" }));
    await user.click(await screen.findByRole("button", { name: "Remove" }));
    await waitFor(() => expect(screen.queryByRole("button", { name: "Open" })).toBeNull());
    await waitFor(() => expect(document.activeElement).toBe(screen.getByRole("main")));
  });
});

/** A page whose dialog removes the button that opened it, as the deletion of a row does. */
function RemovingPage({ kind }: { kind: "form" | "question" }) {
  const [open, setOpen] = useState(false);
  const [present, setPresent] = useState(true);
  const Kind = kind === "form" ? Dialog : ConfirmDialog;
  return (
    <main id="content" tabIndex={-1}>
      {present && (
        <button type="button" onClick={() => setOpen(true)}>
          Open
        </button>
      )}
      <Kind open={open} onOpenChange={setOpen} title="Remove it?" action="Remove" onConfirm={async () => setPresent(false)}>
        {kind === "form" && (
          <button
            type="button"
            onClick={() => {
              setPresent(false);
              setOpen(false);
            }}
          >
            Remove
          </button>
        )}
      </Kind>
    </main>
  );
}
