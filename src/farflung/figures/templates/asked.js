"use strict";
// What `farflung view` answers: whether all is well, and the news or an error.
const asked = async (address) => {
  try {
    const answer = await fetch(address, { cache: "no-store" });
    return [answer.ok, await answer.json()];
  } catch {
    return [false, { error: "farflung view is no longer running: this page shows the last state." }];
  }
};
// A message is set only if it is new, since screen readers read what is set.
const tell = (place, text) => {
  if (place.textContent !== text) place.textContent = text;
  place.hidden = !text;
};
