// The line at the bottom with the result of an act. An error stays until it is dismissed or replaced.
const box = document.getElementById('message');
const text = document.getElementById('said');
let timer = null;

export function say(sentence, wrong = false) {
  clearTimeout(timer);
  box.classList.toggle('wrong', wrong);
  text.setAttribute('role', wrong ? 'alert' : 'status');
  box.hidden = false;
  text.textContent = sentence;
  if (!wrong) timer = setTimeout(hide, 8000);
}

function hide() {
  clearTimeout(timer);
  if (box.contains(document.activeElement)) document.getElementById('main').focus({ preventScroll: true });
  box.hidden = true;
  text.textContent = '';
}

document.getElementById('dismiss').addEventListener('click', hide);

// doing runs an act, shows its result, and returns its answer, null when it failed.
export async function doing(act) {
  try {
    const answer = await act();
    if (answer?.message) say(answer.message);
    return answer ?? {};
  } catch (err) {
    say(err.message, true);
    if (err.status === undefined && err.name !== 'Error') throw err;
    return null;
  }
}
