// @vitest-environment jsdom
import { cleanup, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { afterEach, describe, expect, it } from "vitest";
import type { Provider } from "@/api/providers";
import type { Offer } from "@/api/scripts";
import { CHEAPEST_NEXT, type Failover, failoverBody, FailoverFields } from "./failover-fields";
import { LOCAL } from "./offer-selection";

afterEach(cleanup);

const connected = (...names: string[]) => names.map((name) => ({ name, title: name.toUpperCase(), connected: true }) as Provider);

function show(names: string[], chosen: Offer | typeof LOCAL = { provider: "modal" } as Offer) {
  const chosenNow: Failover[] = [];
  function Form() {
    const [failover, setFailover] = useState(CHEAPEST_NEXT);
    chosenNow.push(failover);
    return <FailoverFields selection={{ chosen, connections: connected(...names) }} failover={failover} onChange={setFailover} />;
  }
  render(<Form />);
  return () => failoverBody(chosenNow.at(-1) ?? CHEAPEST_NEXT);
}

describe("when the chosen offer has no machine", () => {
  it("the next cheapest offer is taken unless somebody says otherwise", async () => {
    const sent = show(["modal", "lambda", "runpod"]);
    expect(sent()).toEqual({ failover: null, failover_by: { order: "cost", providers: [] } });
    await userEvent.selectOptions(screen.getByLabelText("If no machine is free"), "time");
    await userEvent.click(screen.getByLabelText("LAMBDA"));
    await userEvent.click(screen.getByLabelText("RUNPOD"));
    await userEvent.click(screen.getByLabelText("LAMBDA"));
    expect(sent()).toEqual({ failover: null, failover_by: { order: "time", providers: ["runpod"] } });
    expect(screen.queryByLabelText("MODAL")).toBeNull();
  });

  it("the job can also wait", async () => {
    const sent = show(["modal", "lambda", "runpod"]);
    await userEvent.selectOptions(screen.getByLabelText("If no machine is free"), "none");
    expect(sent().failover).toEqual([]);
    expect(screen.queryByRole("checkbox")).toBeNull();
  });

  it("nothing is asked on this machine, nor where only one provider is connected", () => {
    show(["modal", "lambda"], LOCAL);
    expect(screen.queryByRole("combobox")).toBeNull();
    show(["modal"]);
    expect(screen.queryByRole("combobox")).toBeNull();
    show(["modal", "lambda"]);
    expect(screen.getByRole("combobox")).toBeTruthy();
  });
});
